#!/usr/bin/env bash
# How fine-tuning gives credit and explores: see learning_credit.py.
set -euo pipefail
cd "$(dirname "$0")/../.."
scripts/setup.sh >&2
scripts/build_release.sh >&2
exec .venv/bin/python scripts/reproduce/learning_credit.py "$@"
