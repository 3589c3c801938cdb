#!/usr/bin/env bash
# Builds what users run: build/release/bin/heterog, and the library of the Python client beside it.
# Seconds if nothing has changed.
set -euo pipefail
cd "$(dirname "$0")/.."
[[ -f build/release/build.ninja ]] || cmake --preset release
cmake --build build/release --target heterog heterog_client heterog_planner_program heterog_planner_client
