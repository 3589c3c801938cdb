#!/usr/bin/env bash
# Tries the wheels beside versions of PyTorch, each in an environment of its own as pip makes it, and
# prints a row for each: what they do, and what they refuse (scripts/try_torch.py).
# Usage: torch_versions.sh [--shares] [--wheels FOLDER] [VERSION…]
#   --shares          heterog-shares alone, which has no library
#   --wheels FOLDER   those that lie there, in place of new ones
#   without versions  the oldest that auto_shares runs with, one in the middle, and the last of each
#                     minor version from 2.11 to the newest of the package index
#   newest            as a version: the newest of the package index alone
# Exit code 1: a row failed. 3: the package index gave no answer.
set -euo pipefail
cd "$(dirname "$0")/.."

folder="" shares=""
while [[ "${1:-}" == --* ]]; do
  case "$1" in
    --shares) shares=--shares ;;
    --wheels)
      folder="${2:?--wheels: name a folder}"
      shift
      ;;
    *)
      echo "torch_versions: unknown argument '$1'; known: --shares, --wheels FOLDER" >&2
      exit 2
      ;;
  esac
  shift
done
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
if [[ -z "$folder" ]]; then
  folder="$(mktemp -d)"
  trap 'rm -rf "$folder"' EXIT
  HETEROG_DIST="$folder" scripts/build_wheel.sh $shares >/dev/null
fi
wheels=("$folder"/heterog_shares-*.whl)
[[ $shares ]] || wheels+=("$folder"/heterog-*.whl)

failed=0
for version in "${versions[@]}"; do
  python="$(scripts/torch_env.sh "$version")"
  # What was tried before; pip would take its files away after those of the new ones have come.
  "$python" -m pip uninstall --quiet --yes --disable-pip-version-check heterog heterog-shares 2>/dev/null
  "$python" -m pip install --quiet --disable-pip-version-check --no-deps "${wheels[@]}"
  "$python" scripts/try_torch.py || failed=1
done
exit "$failed"
