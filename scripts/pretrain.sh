#!/usr/bin/env bash
# Makes models/policies/zoo-small.ckpt again: pretraining with configs/train/zoo.json, in less
# than an hour on two cores. Goes on where an interrupted run stopped. The same config and
# program give the same file on processors of one kind. Arguments are passed on to `heterog train`.
set -euo pipefail
cd "$(dirname "$0")/.."

out=out/pretrain-zoo
export ATEN_CPU_CAPABILITY=avx2 # what the shipped one was made with
scripts/build_release.sh
resume=()
[[ -f $out/train.ckpt ]] && resume=(--resume)
build/release/bin/heterog train --config configs/train/zoo.json --out "$out" "${resume[@]}" "$@"
cp "$out/policy.ckpt" models/policies/zoo-small.ckpt
