#!/usr/bin/env bash
# Builds the program that users run: build/release/bin/heterog. Seconds if nothing has changed.
set -euo pipefail
cd "$(dirname "$0")/.."
[[ -f build/release/build.ninja ]] || cmake --preset release
cmake --build build/release --target heterog
