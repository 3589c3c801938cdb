#!/usr/bin/env bash
# Pipelines train as one device: see verify_pipelines.py.
set -euo pipefail
cd "$(dirname "$0")/../.."
scripts/setup.sh >&2
scripts/build_release.sh >&2
exec .venv/bin/python scripts/reproduce/verify_pipelines.py "$@"
