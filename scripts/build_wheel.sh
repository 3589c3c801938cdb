#!/usr/bin/env bash
# Builds the library and the program in release mode and makes a wheel of them and the Python
# package: dist/heterog-*.whl, or with --cuda dist/heterog_cu13-*.whl, whose library runs on GPUs
# too (beside PyTorch for CUDA 13). HETEROG_BUILD=build/dev takes what another build folder holds, as
# it is.
set -euo pipefail
cd "$(dirname "$0")/.."

name=heterog preset=release
if [[ "${1:-}" == --cuda ]]; then name=heterog-cu13 preset=cuda; fi
if [[ -z "${HETEROG_BUILD:-}" ]]; then
  [[ -f "build/$preset/build.ninja" ]] || cmake --preset "$preset"
  cmake --build "build/$preset" --target heterog heterog_client
  export HETEROG_BUILD="build/$preset"
fi

# From a copy: setuptools writes beside what it reads, and the name of a project is fixed there.
copy="$(mktemp -d)"
trap 'rm -rf "$copy"' EXIT
cp -r python/heterog python/heterog_command.py python/pyproject.toml python/setup.py "$copy"
sed -i "s/^name = \"heterog\"$/name = \"$name\"/" "$copy/pyproject.toml"
HETEROG_ROOT="$PWD" .venv/bin/pip wheel --quiet --disable-pip-version-check --no-deps \
  --wheel-dir "${HETEROG_DIST:-dist}" "$copy"
ls -l "${HETEROG_DIST:-dist}/${name//-/_}"-*.whl
