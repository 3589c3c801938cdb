#!/usr/bin/env bash
# Checks that pages and comments refer to what is in the repository: decisions and sections of
# docs/design.md, pages of docs/, sources and scripts, and the relative links of every page; and that
# scripts/run_pages.py can read the blocks of README.md and docs/. Usage: check_docs.sh [ROOT]
set -euo pipefail
scripts="$(cd "$(dirname "$0")" && pwd)"
cd "${1:-$(dirname "$0")/..}"
bad=0
complain() { echo "$1: $2"; bad=1; }

# Every text file but what is built, installed or given.
mapfile -t files < <(
  find . \( -name '.[a-z]*' -o -name build -o -name dist -o -name out -o -name models \
    -o -name __pycache__ \) -prune -o -type f -printf '%P\n' | sort)
# "FILE:LINE:MATCH", one a match.
matches() { printf '%s\0' "${files[@]}" | xargs -0 grep -HnoIP "$1" || true; }
# The name of each heading of a page, as links give it.
anchors() {
  sed -nE 's/^#+ +//p' "$1" | tr '[:upper:]' '[:lower:]' | sed 's/[^[:alnum:] _-]//g; s/ /-/g'
}
design=docs/design.md

while IFS=: read -r file line match; do
  complain "$file:$line" "\"$match\": say which decision or section of $design"
done < <(matches '\bDESI[G]N\b|\b[Rr]ule [0-9]+\b')

while IFS=: read -r file line match; do
  grep -q "^### Decision ${match##* }:" "$design" ||
    complain "$file:$line" "\"$match\": $design has no such decision"
done < <(matches '\b[Dd]ecisions? [0-9]+\b')

while IFS=: read -r file line match; do
  grep -qE "^##+ ${match##*§}\.? " "$design" ||
    complain "$file:$line" "\"$match\": $design has no such section"
done < <(matches 'design\.md §[0-9]+(\.[0-9]+)?')

while IFS=: read -r file line match; do
  [[ -e "$match" || "$file" == CHANGELOG.md ]] ||  # of what was
    complain "$file:$line" "\"$match\" does not exist"
done < <(matches '\bdocs/([a-z_]+/)?[A-Za-z_]+\.md\b')

while IFS=: read -r file line match; do
  [[ -e "$match" || "$file" == tests/scripts/* || "$file" == CHANGELOG.md ]] ||  # of what was
    complain "$file:$line" "\"$match\" does not exist"
done < <(matches '(?<![A-Za-z0-9_/.*])(src|tests|scripts|bench|python|examples)/[A-Za-z0-9_/-]+\.(cc|h|py|sh)\b')

# Tables and figures, by names of those that are listed by scripts/reproduce.sh.
if [[ -x scripts/reproduce.sh ]]; then
  names="$(scripts/reproduce.sh --help | sed -n 's/^  //p')"
  while IFS=: read -r file line match; do
    [[ "$file" == tests/scripts/* ]] || grep -qxF -- "$match" <<<"$names" ||
      complain "$file:$line" "\"$match\": no table or figure of scripts/reproduce.sh"
  done < <(matches 'scripts/reproduce\.sh \K[a-z][a-z0-9_]*')
fi

mapfile -t run < <(for page in README.md docs/*.md docs/*/*.md; do [[ ! -f "$page" ]] || echo "$page"; done)
[[ ${#run[@]} == 0 ]] || python3 "$scripts/run_pages.py" --read "${run[@]}" || bad=1

for page in *.md docs/*.md docs/*/*.md src/*.md models/*.md configs/*/*.md; do
  [[ -f "$page" ]] || continue
  while IFS=: read -r line link; do
    target="${link#](}" && target="${target%)}"
    case "$target" in *://* | mailto:*) continue ;; esac
    path="$(dirname "$page")/${target%%#*}"
    [[ "$target" == \#* ]] && path="$page"
    if [[ ! -e "$path" ]]; then
      complain "$page:$line" "the link to $target leads nowhere"
    elif [[ "$target" == *#* ]] && ! grep -qxF -- "${target#*#}" <<<"$(anchors "$path")"; then
      complain "$page:$line" "the link to $target: no such heading"
    fi
  done < <(grep -noE '\]\([^) ]+\)' "$page" || true)
done
exit $bad
