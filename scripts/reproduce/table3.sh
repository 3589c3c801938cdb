#!/usr/bin/env bash
# HeteroG Table 3, operators by parallelism, beside our plans': see operator_tables.py.
set -euo pipefail
cd "$(dirname "$0")/../.."
scripts/setup.sh >&2
scripts/build_release.sh >&2
exec .venv/bin/python scripts/reproduce/operator_tables.py 3 "$@"
