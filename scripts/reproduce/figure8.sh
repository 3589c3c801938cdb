#!/usr/bin/env bash
# HeteroG Fig. 8, computation and communication over the step: see figure8.py.
set -euo pipefail
cd "$(dirname "$0")/../.."
scripts/setup.sh >&2
scripts/build_release.sh >&2
exec .venv/bin/python scripts/reproduce/figure8.py "$@"
