#!/usr/bin/env bash
# Builds what runs on LibTorch with the thread sanitizer, in build/tsan, and runs the tests in which
# threads meet: workers and their queues under random plans and delays, transports, the rendezvous,
# whole training steps in threads. LibTorch's headers make that long, so it is no part of check.sh,
# which has the tests of src/comm that need none. tests/tsan.supp names what is not ours, and why.
# Usage: tsan_runtime.sh
set -euo pipefail
cd "$(dirname "$0")/.."

cmake --preset tsan -B build/tsan -DHETEROG_LEARNING=ON >/dev/null
cmake --build build/tsan --target transport_test join_test runtime_test

# One thread an operator: LibTorch's own threads are not what is looked at.
export OMP_NUM_THREADS=1
export TSAN_OPTIONS="suppressions=$PWD/tests/tsan.supp history_size=7 exitcode=66 ${TSAN_OPTIONS:-}"

runs=(
  "runtime_test Order.*:JobRanks.*:TrainingRunFile.*:VerifyItself.*"
  "transport_test All/*Transports.*/threads:All/*Transports.*/tcp:TcpTransport.*:LostStore.*"
  "join_test Join.*:Rendezvous.*"
)
failed=0
for run in "${runs[@]}"; do
  read -r program filter <<<"$run"
  echo "== $program $filter"
  "build/tsan/bin/$program" --gtest_brief=1 --gtest_filter="$filter" || failed=1
done
if [[ $failed -ne 0 ]]; then
  echo "the thread sanitizer or a test complains"
  exit 1
fi
echo "no data race in ${#runs[@]} programs"
