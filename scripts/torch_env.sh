#!/usr/bin/env bash
# Makes an environment with one version of PyTorch, as pip installs it, and prints its Python:
# torch_env.sh VERSION. Kept beside that of setup.sh, so that it is made once. Exit code 3: the
# package index gave no answer, or was not done after HETEROG_INSTALL_SECONDS (900), and nothing has
# been made.
set -euo pipefail
cd "$(dirname "$0")/.."

version="$1"
cache="${XDG_CACHE_HOME:-$HOME/.cache}/heterog"
venv="$cache/torch-$version"
if [[ ! -e "$venv/.complete" ]]; then
  mkdir -p "$cache"
  rm -rf "$venv"
  echo "torch_env: installing PyTorch $version (3 to 6 GB, a minute or two)" >&2
  /usr/bin/python3 -m venv "$venv"
  if ! timeout "${HETEROG_INSTALL_SECONDS:-900}" "$venv/bin/pip" install --quiet --disable-pip-version-check "torch==$version" safetensors \
    "$(grep '^numpy' python/requirements.txt)" >&2; then
    rm -rf "$venv"
    exit 3
  fi
  touch "$venv/.complete"
fi
echo "$venv/bin/python"
