#!/usr/bin/env bash
# What the scorer of moves is worth: see move_scorer.py.
set -euo pipefail
cd "$(dirname "$0")/../.."
scripts/setup.sh >&2
scripts/build_release.sh >&2
exec .venv/bin/python scripts/reproduce/move_scorer.py "$@"
