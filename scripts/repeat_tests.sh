#!/usr/bin/env bash
# Runs the tests in which something is killed, waited for or late again and again, all programs at
# once, and prints how often each passed. For an idle machine, and for one that compiles beside it:
# no verdict of theirs may depend on how fast it is. Needs build/dev. Usage: repeat_tests.sh [TIMES]
set -euo pipefail
cd "$(dirname "$0")/.."
times="${1:-20}"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

runs=(
  "run_test Run.LosesNothing*"
  "run_test Run.EndsWhenARankIsKilled*"
  "run_test Run.EndsWhenAPeerIsSilent"
  "run_test Run.EndsWhenRankZero*:Run.EndsWhenTheNetwork*"
  "run_test Run.EndsWhenARankFreezes*:Run.EndsWhenAPeerNever*:Run.RefusesARankOfAnother*:Run.EndsWithItsRanks*"
  "transport_test *"
  "launch_test *"
  "join_test *"
  "comm_test *"
  "cli_test *KilledByTheSystem*:ProfileVerb.GoesOn*"
  "runtime_test JobRanks*:TrainingRun*"
)
for i in "${!runs[@]}"; do
  read -r program filter <<<"${runs[$i]}"
  mkdir "$work/$i"
  TMPDIR="$work/$i" "build/dev/bin/$program" --gtest_repeat="$times" --gtest_brief=1 \
    --gtest_filter="$filter" >"$work/$i.log" 2>&1 &
done
failed=0
for job in $(jobs -p); do wait "$job" || failed=1; done

# What a repetition that fails says is kept in the output below the table.
printf '%-14s %7s  %s\n' program passed filter
for i in "${!runs[@]}"; do
  read -r program filter <<<"${runs[$i]}"
  passed="$(awk '/^\[  FAILED  \]/ {bad = 1} /^\[==========\].* ran/ {n += !bad; bad = 0}
    END {print n + 0}' "$work/$i.log")"
  printf '%-14s %3d/%-3d  %s\n' "$program" "$passed" "$times" "$filter"
done
grep -h -A6 ': Failure' "$work"/*.log || true
exit $failed
