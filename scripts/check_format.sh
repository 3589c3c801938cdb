#!/usr/bin/env bash
# Names every C++ file that is not formatted as .clang-format says; with --fix, formats them.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t files < <(find src tests bench -name '*.h' -o -name '*.cc' | sort)
if [[ "${1:-}" == --fix ]]; then
  exec clang-format -i "${files[@]}"
fi
if ! messages="$(clang-format --dry-run --Werror "${files[@]}" 2>&1)"; then
  echo "not formatted (repair: scripts/check_format.sh --fix):"
  grep -o '^[^ :]*:[0-9]*' <<<"$messages" | awk -F: '!seen[$1]++ { print "  " $0 }'
  exit 1
fi
