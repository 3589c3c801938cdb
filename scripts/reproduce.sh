#!/usr/bin/env bash
# Prints a published table or figure again: scripts/reproduce.sh NAME [ARGUMENTS OF ITS SCRIPT]. NAME is
# a table or figure of a paper, or a script of scripts/reproduce; without one it lists them all.
set -euo pipefail
cd "$(dirname "$0")/.."

# Names that are not those of their scripts, with the script and its first arguments.
declare -A published=(
  [table1]="heterog_tables 1" [table2]="operator_tables 2" [table3]="operator_tables 3"
  [table4]="heterog_tables 4" [table5]="end_to_end" [table6]="unseen_models" [table7]="order_table"
)
# Those that go by another name, and what others import.
hidden=" heterog_tables operator_tables end_to_end unseen_models order_table cap paced wide_problems "

list() {
  printf '%s\n' "${!published[@]}" orders
  for script in scripts/reproduce/*.py scripts/reproduce/*.sh; do
    name="$(basename "${script%.*}")"
    [[ "$hidden" == *" $name "* ]] || echo "$name"
  done
}

if [[ $# -eq 0 || "$1" == --help ]]; then
  echo "usage: scripts/reproduce.sh NAME [ARGUMENTS], NAME one of"
  list | sort -V | sed 's/^/  /'
  exit $(($# == 0 ? 2 : 0))
fi
name="$1" && shift
names="$(list)"  # not a pipe: grep ends at the first match, and who still writes would fail
if ! grep -qxF -- "$name" <<<"$names"; then
  echo "reproduce.sh: $name: there is no such table or figure; without a name it lists them" >&2
  exit 2
fi
[[ -f "scripts/reproduce/$name.sh" ]] && exec "scripts/reproduce/$name.sh" "$@"

scripts/setup.sh >&2
scripts/build_release.sh >&2
case "$name" in
  orders | table7) cmake --build build/release --target order_steps >&2 ;;
  celeritas_tables) cmake --build build/release --target fusion_facts >&2 ;;
esac
[[ "$name" == orders ]] && exec build/release/bin/order_steps "$@"
read -ra script <<<"${published[$name]:-$name}"
PYTHONPATH=python exec .venv/bin/python "scripts/reproduce/${script[0]}.py" "${script[@]:1}" "$@"
