#!/usr/bin/env bash
# SPP's tables and figures: see spp_tables.py.
set -euo pipefail
cd "$(dirname "$0")/../.."
scripts/setup.sh >&2
scripts/build_release.sh >&2
exec .venv/bin/python scripts/reproduce/spp_tables.py "$@"
