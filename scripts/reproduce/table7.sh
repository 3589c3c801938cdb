#!/usr/bin/env bash
# HeteroG Table 7, rank order against FIFO: see order_table.py.
set -euo pipefail
cd "$(dirname "$0")/../.."
scripts/setup.sh >&2
scripts/build_release.sh >&2
cmake --build build/release --target order_steps >&2
exec .venv/bin/python scripts/reproduce/order_table.py "$@"
