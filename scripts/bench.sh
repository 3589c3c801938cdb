#!/usr/bin/env bash
# Builds the benchmarks and runs them one after another, on an otherwise idle machine: the figures of
# docs/performance.md. Arguments name some of them (simulator, evaluate, scale, analysis, simgrid);
# simgrid needs Debian's libsimgrid-dev.
set -euo pipefail
cd "$(dirname "$0")/.."
names=("$@")
if ((${#names[@]} == 0)); then
  names=(analysis simulator evaluate scale)
  if [[ -e /usr/include/simgrid/s4u.hpp ]]; then names+=(simgrid); fi
fi
# Configured anew, since SimGrid may have come or gone.
cmake --preset release >/dev/null
cmake --build build/release --target "${names[@]/#/bench_}" >&2
echo "machine: $(lscpu | sed -n 's/^Model name: *//p'), $(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg)"
for name in "${names[@]}"; do
  echo "== bench_$name"
  "build/release/bin/bench_$name" 2>/dev/null
done
