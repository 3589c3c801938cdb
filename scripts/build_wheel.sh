#!/usr/bin/env bash
# Builds the library and the program in release mode and makes dist/heterog-*.whl of them and the
# Python package. HETEROG_BUILD=build/dev takes what another build folder holds, as it is.
set -euo pipefail
cd "$(dirname "$0")/.."
[[ -n "${HETEROG_BUILD:-}" ]] || scripts/build_release.sh
rm -rf python/build
.venv/bin/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist ./python
rm -rf python/build python/heterog.egg-info
ls -l dist/*.whl
