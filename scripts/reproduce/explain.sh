#!/usr/bin/env bash
# Prints the example of docs/explain.md: VGG-19 on HeteroG's 8 GPUs, proportional data parallelism
# explained, then compared with what a search makes of it; and what plan says of a cluster with cards
# that it does without. Leaves the page in out/vgg19.html.
# Needs build/release/bin/heterog (scripts/build_release.sh); HETEROG names another one.
set -euo pipefail
cd "$(dirname "$0")/../.."

heterog="${HETEROG:-build/release/bin/heterog}"
problem=(--graph models/vgg19.json.gz --cluster configs/clusters/heterog-8gpu.json)
mkdir -p out
"$heterog" plan "${problem[@]}" --batch 192 --planner cp-ar --out out/vgg19-cp-ar.json >/dev/null
"$heterog" plan "${problem[@]}" --batch 192 --planner local-search --evaluations 400 \
  --out out/vgg19-search.json >/dev/null

"$heterog" explain "${problem[@]}" --plan out/vgg19-cp-ar.json
echo
"$heterog" diff "${problem[@]}" out/vgg19-cp-ar.json out/vgg19-search.json
echo
"$heterog" report "${problem[@]}" --plan out/vgg19-search.json out/vgg19-cp-ar.json \
  --out out/vgg19.html
echo
"$heterog" plan --graph models/vgg19.json.gz --cluster configs/clusters/office-mixed.json --batch 96 \
  --out out/plan.json
