#!/usr/bin/env bash
# check_docs.sh accepts references and links that lead somewhere, and refuses each kind that does
# not.
set -euo pipefail
check="$(cd "$(dirname "$0")/../.." && pwd)/scripts/check_docs.sh"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/docs" "$work/src"
printf '## 4. Types\n### 4.2 Split rules\n## 5. Decisions\n### Decision 8: order\n' \
  >"$work/docs/design.md"

page=docs/pages".md"

# expect STATUS FILE LINE: with this line in this file the tree passes (0) or fails (1), and a
# failure names file and line.
expect() {
  echo "$3" >"$work/$2"
  local status=0
  "$check" "$work" >"$work.out" 2>&1 || status=1
  if [[ $status -ne $1 ]] || { [[ $1 -eq 1 ]] && ! grep -q "^$2:1: " "$work.out"; }; then
    echo "check_docs_test: $2 with '$3': status $status, expected $1"
    cat "$work.out"
    exit 1
  fi
  rm "$work/$2" "$work.out"
}

expect 0 src/a.h '// Ties as decision 8 says (docs/design.md §4.2).'
expect 0 src/a.h '// Rules that matter; designed; decisions of units.'
expect 1 src/a.h "// Ties as deci""sion 14 says."
expect 1 src/a.h '// Decisions 7 and 8.'
expect 1 src/a.h '// See docs/design.md §4.9.'
expect 1 src/a.h '// See docs/design.md §6.'
expect 1 src/a.h "// See DESI""GN §4."
expect 1 src/a.h "// As ru""le 8 says."
expect 1 src/a.h "// See docs/""costs.md."
expect 1 src/a.h "// See docs/""results/costs.md."
expect 0 CHANGELOG.md "- docs/""costs.md is another page."
expect 0 $page '[order](design.md#decision-8-order), [here](#here), https://a.b/c'$'\n''## Here'
expect 0 src/a.h '// As src/a.h says, and not src/*_io.cc.'
expect 0 CHANGELOG.md '- scripts/gone.sh is one file.'
expect 1 src/a.h '// As src/b.h says.'
expect 1 src/a.h '// As python/b.py says.'
expect 1 $page 'See `tests/a_test.cc`.'
expect 0 README.md '[design](docs/design.md), [site](https://a.b/c)'
expect 1 $page '[order](designs.md)'
expect 1 $page '[order](design.md#decision-9)'
expect 1 README.md '[order](design.md)'
expect 1 $page '<!-- fails 2 -->'
expect 1 $page '<!-- setup sh -->'
expect 0 $page '```text'$'\n''scripts/run it'$'\n''```'
block="$work/docs/block"".md"
printf '```\nscripts/run it\n```\n' >"$block"
if "$check" "$work" >"$work.out" 2>&1 || ! grep -q "looks like a command" "$work.out"; then
  echo "check_docs_test: a command in a block without a language passes"
  exit 1
fi
rm "$block" "$work.out"
mkdir -p "$work/docs/results"
expect 0 docs/results/orders"".md '[order](../design.md#decision-8-order)'
expect 1 docs/results/orders"".md '[order](design.md)'
mkdir -p "$work/scripts"
printf '#!/bin/sh\necho usage\necho "  table1"\n' >"$work/scripts/reproduce.sh"
chmod +x "$work/scripts/reproduce.sh"
expect 0 $page 'See `scripts/reproduce.sh table1 --quick` and scripts/reproduce.sh NAME.'
expect 1 $page 'See `scripts/reproduce.sh table9`.'
echo "check_docs_test: ok"
