#!/usr/bin/env bash
# Every planner at equal budgets: see learning_value.py.
set -euo pipefail
cd "$(dirname "$0")/../.."
scripts/setup.sh >&2
scripts/build_release.sh >&2
exec .venv/bin/python scripts/reproduce/learning_value.py "$@"
