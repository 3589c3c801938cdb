#!/usr/bin/env bash
# Makes the wheels in dist: heterog_shares-*.whl, the package in Python alone, and heterog-*.whl, the
# library and the program in release mode; with --cuda heterog_cu13-*.whl in place of the latter, whose
# library runs on GPUs too (beside PyTorch for CUDA 13).
# Usage: build_wheel.sh [--shares | --cuda] [--torch VERSION]…
#   --shares         the package alone; nothing is compiled
#   --torch VERSION  also holds the library for this version of PyTorch, as 2.15.0; another build.
#                    Without it, that for the pinned one (python/requirements.txt) alone
# HETEROG_BUILD=build/dev takes what another build folder holds, or several with : between them, as
# they are.
set -euo pipefail
cd "$(dirname "$0")/.."

name=heterog package=heterog_native preset=release versions=()
while (($#)); do
  case "$1" in
    --cuda) name=heterog-cu13 package=heterog_native_cu13 preset=cuda ;;
    --shares) name="" ;;
    --torch)
      versions+=("${2:?--torch: name a version, as 2.15.0}")
      shift
      ;;
    *)
      echo "build_wheel.sh: unknown argument '$1'; known: --shares, --cuda, --torch VERSION" >&2
      exit 2
      ;;
  esac
  shift
done

build() { # FOLDER PYTHON
  [[ -f "$1/build.ninja" ]] || cmake --preset "$preset" -B "$1" -DHETEROG_PYTHON="$2"
  cmake --build "$1" --target heterog heterog_client heterog_planner_program heterog_planner_client
  HETEROG_BUILD="${HETEROG_BUILD:+$HETEROG_BUILD:}$1"
}
if [[ $name && -z "${HETEROG_BUILD:-}" ]]; then
  build "build/$preset" "$PWD/.venv/bin/python"
  for version in "${versions[@]}"; do
    python="$(scripts/torch_env.sh "$version")"
    build "build/$preset-torch-$version" "$python"
  done
fi
# From copies: setuptools writes beside what it reads, and the name of a project is fixed there.
dist="${HETEROG_DIST:-dist}"
copy="$(mktemp -d)"
trap 'rm -rf "$copy"' EXIT
wheel() { # FOLDER FILE
  cp LICENSE "$1"
  HETEROG_ROOT="$PWD" .venv/bin/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$dist" "$1"
  ls -l "$dist/$2"-*.whl
}
mkdir "$copy/shares"
cp -r python/heterog python/heterog_command.py python/pyproject.toml python/setup.py python/README.md "$copy/shares"
wheel "$copy/shares" heterog_shares
[[ $name ]] || exit 0

cp -r python/native "$copy/native"
if [[ $package != heterog_native ]]; then
  mv "$copy/native/heterog_native" "$copy/native/$package"
  sed -i "s/^name = \"heterog\"$/name = \"$name\"/; s/\"heterog_native\"/\"$package\"/" "$copy/native/pyproject.toml"
fi
export HETEROG_BUILD="${HETEROG_BUILD:-}" HETEROG_PACKAGE="$package"
wheel "$copy/native" "${name//-/_}"
