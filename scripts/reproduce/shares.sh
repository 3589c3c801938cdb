#!/usr/bin/env bash
# The shares of plain data parallelism on HeteroG's 8 GPUs: see shares.py.
set -euo pipefail
cd "$(dirname "$0")/../.."
scripts/setup.sh >&2
scripts/build_release.sh >&2
exec .venv/bin/python scripts/reproduce/shares.py "$@"
