#!/usr/bin/env bash
# Installs what heterog needs to build and test: Debian packages and a Python environment with
# LibTorch. Safe to run again: a finished step is recognised and skipped in a moment.
#
# The environment is kept in ${XDG_CACHE_HOME:-$HOME/.cache}/heterog, named by the hash of
# python/requirements.txt, so that every checkout on a machine shares it; .venv links to it.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(
  build-essential g++ cmake ninja-build ccache git ca-certificates clang-format clang-tidy
  python3 python3-venv
  nlohmann-json3-dev libcli11-dev libspdlog-dev libfmt-dev zlib1g-dev libxxhash-dev
  libgtest-dev libgmock-dev libbenchmark-dev
  coinor-libclp1 libmetis5  # loaded by the planners m-sct and metis
  chromium zsh fish  # visited and read by tests
)

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
if ((${#missing[@]})); then
  echo "setup: installing ${missing[*]}"
  as_root=()
  if [[ $(id -u) -ne 0 ]]; then as_root=(sudo); fi
  "${as_root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends \
    "${missing[@]}" >/dev/null
fi

cache="${XDG_CACHE_HOME:-$HOME/.cache}/heterog"
venv="$cache/venv-$(sha256sum python/requirements.txt | cut -c1-12)"
if [[ ! -e "$venv/.complete" ]]; then
  echo "setup: creating the Python environment (downloads PyTorch, a few minutes)"
  mkdir -p "$cache"
  rm -rf "$venv"
  /usr/bin/python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r python/requirements.txt
  touch "$venv/.complete"
fi
ln -sfn "$venv" .venv
echo "setup: ready ($("$venv/bin/python" --version), torch from $venv)"
