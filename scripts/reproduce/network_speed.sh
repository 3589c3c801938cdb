#!/usr/bin/env bash
# What planning gains over data parallelism, by the network: see network_speed.py.
set -euo pipefail
cd "$(dirname "$0")/../.."
scripts/setup.sh >&2
scripts/build_release.sh >&2
exec .venv/bin/python scripts/reproduce/network_speed.py "$@"
