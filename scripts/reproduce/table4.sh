#!/usr/bin/env bash
# HeteroG Table 4 beside our plans: see heterog_tables.py.
set -euo pipefail
cd "$(dirname "$0")/../.."
scripts/setup.sh >&2
scripts/build_release.sh >&2
exec .venv/bin/python scripts/reproduce/heterog_tables.py 4 "$@"
