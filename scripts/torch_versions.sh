#!/usr/bin/env bash
# Tries a wheel beside versions of PyTorch, each in an environment of its own as pip makes it, and
# prints a row for each: what it does, and what it refuses (scripts/try_torch.py).
# Usage: torch_versions.sh [--wheel FILE] [VERSION…]
#   without versions  the oldest that auto_shares runs with, one in the middle, and the last of each
#                     minor version from 2.11 to the newest of the package index
#   newest            as a version: the newest of the package index alone
# Exit code 1: a row failed. 3: the package index gave no answer.
set -euo pipefail
cd "$(dirname "$0")/.."

wheel=""
if [[ "${1:-}" == --wheel ]]; then
  wheel="${2:?--wheel: name a file}"
  shift 2
fi
published() { # newest first
  .venv/bin/pip index versions torch --disable-pip-version-check 2>/dev/null |
    sed -n 's/^Available versions: //p' | tr -d ' ' | tr , '\n'
}
if [[ $# -eq 0 || " $* " == *" newest "* ]]; then
  all="$(published)"
  if [[ -z "$all" ]]; then
    echo "torch_versions: the package index gave no answer; nothing was tried" >&2
    exit 3
  fi
fi
versions=()
for word in "$@"; do
  if [[ "$word" == newest ]]; then word="$(head -1 <<<"$all")"; fi
  versions+=("$word")
done
if [[ $# -eq 0 ]]; then
  mapfile -t versions < <(awk -F. '!seen[$1 "." $2]++ && ($1 > 2 || $2 == 4 || $2 == 8 || $2 >= 11)' <<<"$all" | tac)
fi
if [[ -z "$wheel" ]]; then
  folder="$(mktemp -d)"
  trap 'rm -rf "$folder"' EXIT
  HETEROG_DIST="$folder" scripts/build_wheel.sh >/dev/null
  wheel="$(echo "$folder"/heterog-*.whl)"
fi

failed=0
for version in "${versions[@]}"; do
  python="$(scripts/torch_env.sh "$version")"
  "$python" -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$wheel"
  "$python" scripts/try_torch.py || failed=1
done
exit "$failed"
