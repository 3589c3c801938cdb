#!/usr/bin/env bash
# The learning curve of docs/results.md: see learning_curve.py.
set -euo pipefail
cd "$(dirname "$0")/../.."
scripts/setup.sh >&2
scripts/build_release.sh >&2
exec .venv/bin/python scripts/reproduce/learning_curve.py "$@"
