#!/usr/bin/env bash
# Builds the site of docs/ in build/site. A link that leads nowhere is an error. The generator has an
# environment of its own, beside that of scripts/setup.sh, named by the hash of docs/requirements.txt.
set -euo pipefail
cd "$(dirname "$0")/.."

cache="${XDG_CACHE_HOME:-$HOME/.cache}/heterog"
venv="$cache/site-$(sha256sum docs/requirements.txt | cut -c1-12)"
if [[ ! -e "$venv/.complete" ]]; then
  mkdir -p "$cache"
  rm -rf "$venv"
  /usr/bin/python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r docs/requirements.txt
  touch "$venv/.complete"
fi
exec "$venv/bin/python" scripts/site/build.py
