#!/usr/bin/env bash
# Prints, for every graph in models/, the ops that cannot run on slices of the batch and their share
# of the model's time (roofline, batch 32, the device on which it is largest). Arguments: graphs to
# look at instead. Exit code 1 if the share of a model is above 1 %.
set -euo pipefail
cd "$(dirname "$0")/../.."

build=build/${HETEROG_PRESET:-dev}
[[ -f $build/build.ninja ]] || cmake --preset "${HETEROG_PRESET:-dev}" >/dev/null
cmake --build "$build" --target heterog_whole_ops >/dev/null
if (($# == 0)); then set -- models/*.json.gz; fi
exec "$build/bin/heterog_whole_ops" configs/devices.json "$@"
