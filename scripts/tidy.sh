#!/usr/bin/env bash
# Runs clang-tidy with .clang-tidy. Usage: tidy.sh all | changed | FILE...  (after cmake --preset dev)
# "changed" are the .cc files of src/ that differ from the last commit.
set -euo pipefail
cd "$(dirname "$0")/.."
build="${HETEROG_TIDY_BUILD:-build/dev}"

case "${1:-changed}" in
  all) mapfile -t files < <(find src -name '*.cc' | sort) ;;
  changed)
    mapfile -t files < <({
      git diff --name-only --diff-filter=d HEAD -- 'src/*.cc'
      git ls-files --others --exclude-standard -- 'src/*.cc'
    } | sort -u)
    ;;
  *) files=("$@") ;;
esac
if ((${#files[@]} == 0)); then exit 0; fi

# clang reads neither the precompiled headers of GCC nor its flags for them.
database="$(mktemp -d)"
trap 'rm -rf "$database"' EXIT
sed -E 's/ -include [^ ]*cmake_pch\.hxx//g; s/ -Winvalid-pch//g; s/ -fpch-preprocess//g' \
  "$build/compile_commands.json" >"$database/compile_commands.json"
# What this build does not compile is left out: sources of other presets.
compiled=()
for file in "${files[@]}"; do
  if grep -q "\"file\": \".*$file\"" "$database/compile_commands.json"; then compiled+=("$file"); fi
done
if ((${#compiled[@]} == 0)); then exit 0; fi
printf '%s\n' "${compiled[@]}" |
  xargs -P "$(nproc)" -n 1 clang-tidy -p "$database" --quiet 2> >(grep -v 'warnings generated' >&2)
