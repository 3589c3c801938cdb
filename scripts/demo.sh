#!/usr/bin/env bash
# The main job from nothing: installs, builds, then plans BERT-large, batch 48, on 8 GPUs of three
# kinds: one shot from the shipped policy, one minute of fine-tuning on this graph, and a table of
# planners. Leaves out/plan.json, out/trace.json and out/bert_large24.ckpt. Ready for a second run.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh
scripts/build_release.sh

heterog=build/release/bin/heterog
problem=(--graph models/bert_large24.json.gz --cluster configs/clusters/heterog-8gpu.json --batch 48)
mkdir -p out

say() { printf '\n== %s\n' "$*"; }

say "One shot: heterog plan"
$heterog plan "${problem[@]}" --out out/plan-one-shot.json

say "One minute of fine-tuning on this graph: heterog finetune"
$heterog finetune "${problem[@]}" --budget "${DEMO_SECONDS:-60}" --out out/bert_large24.ckpt \
  --plan out/plan.json --trace out/trace.json

say "All planners: heterog compare"
$heterog compare "${problem[@]}" --policy out/bert_large24.ckpt

say "Done in $SECONDS s"
echo "plan:   out/plan.json (and out/plan-one-shot.json)"
echo "trace:  out/trace.json, for https://ui.perfetto.dev"
echo "policy: out/bert_large24.ckpt, tuned for this graph"
