#!/usr/bin/env bash
# How the policy is trained, one change at a time: see learning_table.py.
set -euo pipefail
cd "$(dirname "$0")/../.."
scripts/setup.sh >&2
scripts/build_release.sh >&2
exec .venv/bin/python scripts/reproduce/learning_table.py "$@"
