#!/usr/bin/env bash
# HeteroG's Fig. 9: see figure9.py.
set -euo pipefail
cd "$(dirname "$0")/../.."
scripts/setup.sh >&2
scripts/build_release.sh >&2
exec .venv/bin/python scripts/reproduce/figure9.py "$@"
