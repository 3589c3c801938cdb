#!/usr/bin/env bash
# HeteroG Table 5, minutes to convergence, by our steps: see end_to_end.py.
set -euo pipefail
cd "$(dirname "$0")/../.."
scripts/setup.sh >&2
scripts/build_release.sh >&2
exec .venv/bin/python scripts/reproduce/end_to_end.py "$@"
