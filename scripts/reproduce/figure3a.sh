#!/usr/bin/env bash
# HeteroG Fig. 3(a), proportional over even replicas on 4 GPUs: see figure3a.py.
set -euo pipefail
cd "$(dirname "$0")/../.."
scripts/setup.sh >&2
scripts/build_release.sh >&2
exec .venv/bin/python scripts/reproduce/figure3a.py "$@"
