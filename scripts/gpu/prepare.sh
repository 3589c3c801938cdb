#!/usr/bin/env bash
# Fills out/gpu, on a machine without a GPU, with what scripts/gpu/kit.py needs on one that has it:
# the wheel (for CUDA; with --fake the plain one), graphs, and predictions written down before anything
# is measured. Safe to run again: a file that is newer than what it is made of is kept.
#
#   scripts/gpu/prepare.sh [--fake]     KIT=FOLDER: there in place of out/gpu
#
# HETEROG_BUILD=build/dev packs what that folder holds, as scripts/build_wheel.sh does.
set -euo pipefail
cd "$(dirname "$0")/../.."

kit=${KIT:-out/gpu} fake=
if [[ "${1:-}" == --fake ]]; then fake=1; shift; fi
if (($#)); then echo "prepare.sh: '$1' is not known: only --fake is; KIT=FOLDER names another folder" >&2; exit 2; fi
mkdir -p "$kit"
scripts/setup.sh
rm -f "$kit"/*.whl
HETEROG_DIST="$kit" scripts/build_wheel.sh $([[ $fake ]] || echo --cuda)

tiny="tiny_causal tiny_causal_odd tiny_mask tiny_mask_odd tiny_dropout tiny_head6"
tiny_half="tiny_causal tiny_head6 tiny_mask_odd tiny_dropout"
large="resnet50 gpt2_tf32 bert_large_no_dropout_tf32"
large_half="gpt2 resnet50_channels_last bert_large"
if [[ $fake ]]; then large="" large_half=""; fi

export PYTHONPATH=python
export_graph() {  # NAME FILE FLAG…
  local name=$1 file=$kit/$2.json.gz
  shift 2
  [[ $file -nt scripts/gpu/models.py ]] ||
    .venv/bin/python -m heterog.export --no-check "scripts/gpu/models.py:$name" --out "$file" "$@"
}
for name in $tiny $large; do export_graph "$name" "$name"; done
for name in $tiny_half $large_half; do export_graph "$name" "${name}_bf16" --autocast bfloat16; done

# What the models are predicted to take on an H100, before anything is measured.
if [[ $large ]]; then
  machine='{"name": "here", "devices": [{"model": "H100-SXM5-80GB", "count": 1}], "fabric": {"kind": "switch", "link": "pcie5-staged"}}'
  echo '{"format": "heterog-cluster", "version": 1, "name": "one", "machines": ['"$machine"']}' > "$kit/h100.json"
  for case in gpt2_bf16:8 bert_large_bf16:8 bert_large_no_dropout_tf32:8 resnet50_channels_last_bf16:128 resnet50:64 gpt2_tf32:8; do
    "${HETEROG_BUILD:-build/release}/bin/heterog" plan --graph "$kit/${case%:*}.json.gz" --cluster "$kit/h100.json" \
      --batch "${case#*:}" --planner single --out "$kit/predicted.plan.json" | sed -n 1p
  done | tee "$kit/predictions.txt.new"
  # Four unequal parts of the card, as kit.py has them.
  parts=
  for part in 64 32 16 8; do
    parts+='{"model": "H100-SXM5-80GB", "part_of_gpu": {"multiprocessors": '$part', "memory_bytes": 19000000000}}, '
  done
  machine='{"name": "here", "devices": ['${parts%, }'], "fabric": {"kind": "bus", "bandwidth_bytes_per_second": 1.675e12, "latency_seconds": 20e-6}}'
  echo '{"format": "heterog-cluster", "version": 1, "name": "parts", "machines": ['"$machine"']}' > "$kit/parts.json"
  for case in resnet50:64 gpt2_tf32:16 bert_large_no_dropout_tf32:16; do
    for planner in ev-ar cp-ar portfolio; do
      "${HETEROG_BUILD:-build/release}/bin/heterog" plan --graph "$kit/${case%:*}.json.gz" --cluster "$kit/parts.json" \
        --batch "${case#*:}" --planner $planner --out "$kit/predicted.plan.json" | sed -n "1s/^/$planner: /p"
    done
  done | tee -a "$kit/predictions.txt.new"
  rm "$kit/predicted.plan.json"
  mv "$kit/predictions.txt.new" "$kit/predictions.txt"
fi
du -sh "$kit"
