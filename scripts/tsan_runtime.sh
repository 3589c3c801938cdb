#!/usr/bin/env bash
# Builds the runtime and its tests with the thread sanitizer, in build/tsan, and runs those in which
# threads meet: workers and their queues under random plans and delays, both transports, the
# rendezvous, whole training steps in threads. It builds everything below the runtime once more, so
# it is no part of check.sh. tests/tsan.supp names what is not ours, and why.
# Usage: tsan_runtime.sh [--gtest_filter=…]
set -euo pipefail
cd "$(dirname "$0")/.."

cmake --preset tsan -B build/tsan -DHETEROG_LEARNING=ON >/dev/null
cmake --build build/tsan --target runtime_test

# One thread an operator: LibTorch's own threads are not what is looked at.
export OMP_NUM_THREADS=1
export TSAN_OPTIONS="suppressions=$PWD/tests/tsan.supp history_size=7 exitcode=66 ${TSAN_OPTIONS:-}"

if [[ $# -gt 0 ]]; then
  exec build/tsan/bin/runtime_test "$@"
fi

groups=(
  "Order.*:Job.*"
  "JobRanks.*:TrainingRunFile.*:Join.*:VerifyItself.*"
  "TcpTransport.*:Rendezvous.*:Network.*:LostStore.*:BoundedCalls.*"
)
failed=0
for group in "${groups[@]}"; do
  echo "== $group"
  build/tsan/bin/runtime_test --gtest_brief=1 --gtest_filter="$group" || failed=1
done
if [[ $failed -ne 0 ]]; then
  echo "the thread sanitizer or a test complains"
  exit 1
fi
echo "no data race in ${#groups[@]} groups of tests"
