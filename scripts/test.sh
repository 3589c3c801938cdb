#!/usr/bin/env bash
# Installs what is missing, builds everything and runs every test. The last line is the tally:
# "N passed, N failed", with ", N skipped" if any. Exit code 0 only if all is well.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh
exec .venv/bin/python scripts/run_tests.py "$@"
