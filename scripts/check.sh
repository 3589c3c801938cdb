#!/usr/bin/env bash
# The one check before a commit: format, layers, pages, clang-tidy on the C++ files that differ from
# the last commit, build, every test. Usage: check.sh [--quick] [--thorough] [--tidy-all]
#   --quick     leaves out the sanitizer builds and the tests marked slow
#   --thorough  draws all the seeds of tests with random cases, not a quarter of them
#   --tidy-all  runs clang-tidy on every file (minutes)
set -euo pipefail
cd "$(dirname "$0")/.."

tests=()
tidy=changed
for argument in "$@"; do
  case "$argument" in
    --quick | --thorough) tests+=("$argument") ;;
    --tidy-all) tidy=all ;;
    *)
      echo "check.sh: unknown argument '$argument'; known: --quick, --thorough, --tidy-all" >&2
      exit 2
      ;;
  esac
done

scripts/check_format.sh
scripts/check_layers.sh
scripts/check_docs.sh
scripts/setup.sh
cmake --preset dev >/dev/null
scripts/tidy.sh "$tidy"
exec scripts/test.sh "${tests[@]}"
