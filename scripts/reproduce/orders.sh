#!/usr/bin/env bash
# Orders of execution under plain data parallelism, beside a random order and the bound of any order
# (docs/results.md). Arguments name models; all eight without.
set -euo pipefail
cd "$(dirname "$0")/../.."
cmake --preset release >/dev/null
cmake --build build/release --target order_steps >&2
exec build/release/bin/order_steps "$@"
