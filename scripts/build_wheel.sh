#!/usr/bin/env bash
# Builds the library and the program in release mode and makes a wheel of them and the Python
# package: dist/heterog-*.whl, or with --cuda dist/heterog_cu13-*.whl, whose library runs on GPUs
# too (beside PyTorch for CUDA 13). Usage: build_wheel.sh [--cuda] [--torch VERSION]…
#   --torch VERSION  also holds the library for this version of PyTorch, as 2.15.0; another build.
#                    Without it, that for the pinned one (python/requirements.txt) alone
# HETEROG_BUILD=build/dev takes what another build folder holds, or several with : between them, as
# they are.
set -euo pipefail
cd "$(dirname "$0")/.."

name=heterog preset=release versions=()
while (($#)); do
  case "$1" in
    --cuda) name=heterog-cu13 preset=cuda ;;
    --torch)
      versions+=("${2:?--torch: name a version, as 2.15.0}")
      shift
      ;;
    *)
      echo "build_wheel.sh: unknown argument '$1'; known: --cuda, --torch VERSION" >&2
      exit 2
      ;;
  esac
  shift
done

build() { # FOLDER PYTHON
  [[ -f "$1/build.ninja" ]] || cmake --preset "$preset" -B "$1" -DHETEROG_PYTHON="$2"
  cmake --build "$1" --target heterog heterog_client
  HETEROG_BUILD="${HETEROG_BUILD:+$HETEROG_BUILD:}$1"
}
if [[ -z "${HETEROG_BUILD:-}" ]]; then
  build "build/$preset" "$PWD/.venv/bin/python"
  for version in "${versions[@]}"; do
    python="$(scripts/torch_env.sh "$version")"
    build "build/$preset-torch-$version" "$python"
  done
fi
export HETEROG_BUILD

# From a copy: setuptools writes beside what it reads, and the name of a project is fixed there.
copy="$(mktemp -d)"
trap 'rm -rf "$copy"' EXIT
cp -r python/heterog python/heterog_command.py python/pyproject.toml python/setup.py "$copy"
sed -i "s/^name = \"heterog\"$/name = \"$name\"/" "$copy/pyproject.toml"
HETEROG_ROOT="$PWD" .venv/bin/pip wheel --quiet --disable-pip-version-check --no-deps \
  --wheel-dir "${HETEROG_DIST:-dist}" "$copy"
ls -l "${HETEROG_DIST:-dist}/${name//-/_}"-*.whl
