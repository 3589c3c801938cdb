#!/usr/bin/env bash
# HeteroG Table 6, fine-tuning on unseen models against training from scratch: see unseen_models.py.
set -euo pipefail
cd "$(dirname "$0")/../.."
scripts/setup.sh >&2
scripts/build_release.sh >&2
exec .venv/bin/python scripts/reproduce/unseen_models.py "$@"
