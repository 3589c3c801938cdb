#!/usr/bin/env bash
# Where an evaluation spends its time: perf over compile and simulate of BERT-large, EV-AR, 8 GPUs
# (bench_scale), functions from the most expensive on. Needs `perf` (Debian's linux-perf).
set -euo pipefail
cd "$(dirname "$0")/../.."
cmake --preset release >/dev/null
cmake --build build/release --target bench_scale >&2
data="$(mktemp)"
trap 'rm -f "$data"' EXIT
perf record -q -o "$data" build/release/bin/bench_scale --benchmark_filter='even_all_reduce/gpus:8/' >/dev/null 2>&1
perf report -i "$data" --stdio --no-children 2>/dev/null | grep -E '^ .*(heterog::(sim|compiler|cost::CostTable)|libc)' |
  sed -E 's/ +bench_scale +[^ ]+ +\[\.\] +/  /; s/heterog:://g' | head -"${1:-24}"
