#!/usr/bin/env bash
# Runs, on a machine with a GPU, what has to be seen there: builds the preset cuda, verifies plans
# over the GPU and the CPU, sets predictions from profiled costs beside measured steps of ResNet-50
# and BERT-large, and one GPU beside eager PyTorch. What it prints is kept in out/gpu.
#
#   scripts/gpu_check.sh DEVICE    the GPU's name in configs/devices.json: V100-SXM2-16GB
#
# Not run yet: no GPU was at hand when it was written.
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ $# -ne 1 ]]; then
  sed -n '2,/^set/p' "$0" | sed '$d; s/^# \{0,1\}//' >&2
  exit 2
fi
device=$1
heterog=build/cuda/bin/heterog
python=.venv/bin/python
out=out/gpu
steps=20

[[ -x $python ]] || scripts/setup.sh
$python - <<'PY'
import sys, torch
if not torch.cuda.is_available():
    sys.exit("no GPU can be used here")
for i in range(torch.cuda.device_count()):
    p = torch.cuda.get_device_properties(i)
    print(f"GPU {i}: {p.name}, {p.total_memory / 1e9:.1f} GB, driver's CUDA {torch.version.cuda}")
PY
mkdir -p "$out"
exec > >(tee "$out/report.txt") 2>&1

echo "== build"
cmake --preset cuda > "$out/cmake.txt"
ninja -C build/cuda heterog > "$out/build.txt"

# NAME MODEL...: a machine of these devices.
cluster() {
  local name=$1 devices=""
  shift
  for model in "$@"; do devices+="${devices:+, }{\"model\": \"$model\", \"count\": 1}"; done
  cat > "$out/$name.json" <<JSON
{"format": "heterog-cluster", "version": 1, "name": "$name",
 "machines": [{"name": "here", "devices": [$devices], "fabric": {"kind": "switch", "link": "pcie3-staged"}}]}
JSON
}
cluster one "$device"
cluster mixed "$device" CPU
cluster shared "$device" "$device"

echo "== plans over the GPU and the CPU, against one CPU"
for model in lenet5 resnet50 bert_large24 xlnet_large24 lstm_lm; do
  for planner in ev-ar cp-ps single; do
    echo "-- $model-tiny, $planner"
    $heterog verify --graph "models/$model-tiny.json.gz" --cluster "$out/mixed.json" --batch 16 \
      --planner "$planner" --devices plan
  done
done

echo "== ranks as processes: GPU and CPU; two on one GPU"
graph=models/bert_large24-tiny.json.gz
$heterog plan --graph $graph --cluster "$out/mixed.json" --batch 16 --planner ev-ar \
  --out "$out/mixed.plan.json"
$heterog run --graph $graph --cluster "$out/mixed.json" --plan "$out/mixed.plan.json" --steps $steps
$heterog plan --graph $graph --cluster "$out/shared.json" --batch 16 --planner ev-ps \
  --out "$out/shared.plan.json"
$heterog run --graph $graph --cluster "$out/shared.json" --plan "$out/shared.plan.json" \
  --steps $steps --any-device

gpus=$($python -c 'import torch; print(torch.cuda.device_count())')
if [[ $gpus -ge 2 ]]; then
  echo "== two GPUs, by NCCL, from here and from torchrun"
  for planner in ev-ar ev-ps; do
    $heterog plan --graph $graph --cluster "$out/shared.json" --batch 16 --planner $planner \
      --out "$out/two.plan.json"
    $heterog run --graph $graph --cluster "$out/shared.json" --plan "$out/two.plan.json" --steps $steps
    .venv/bin/torchrun --no-python --nproc-per-node 2 $heterog run --graph $graph \
      --cluster "$out/shared.json" --plan "$out/two.plan.json" --steps $steps
  done
else
  echo "== one GPU alone: NCCL is not run"
fi

echo "== the policy learns: the same network on GPU and CPU, then the paper's"
$heterog train --config configs/train/small.json --set steps=3 --out "$out/train_cpu"
$heterog train --config configs/train/small.json --set steps=3 --out "$out/train_gpu" --gpu
$python - "$out/train_cpu/train.log" "$out/train_gpu/train.log" <<'END'
import json, sys

# Later steps may draw other strategies, where probabilities differ in the last bit.
cpu, gpu = (json.loads(open(path).readline())["loss"] for path in sys.argv[1:])
print(f"loss of the first step: {cpu:.6f} {gpu:.6f}")
assert abs(cpu - gpu) <= 1e-3 * max(1, abs(cpu))
END
$heterog train --config configs/train/paper.json --set steps=2 --out "$out/train_paper" --gpu

echo "== predicted from profiled costs, and measured; beside eager PyTorch"
predict() {  # MODEL BATCH SLICES
  local graph=models/$1.json.gz
  $heterog profile --graph "$graph" --device "$device" --in-steps --slices "$3" \
    --out "$out/$1.profile.json"
  $heterog plan --graph "$graph" --cluster "$out/one.json" --batch "$2" --planner single \
    --profile "$out/$1.profile.json" --out "$out/$1.plan.json"
  $heterog run --graph "$graph" --cluster "$out/one.json" --plan "$out/$1.plan.json" \
    --profile "$out/$1.profile.json" --steps $steps --trace "$out/$1.trace"
  PYTHONPATH=python $python scripts/gpu_eager.py "$1" --batch "$2" --steps $steps
}
predict resnet50 32 8,16,32,64
predict bert_large24 8 2,4,8,16

echo "kept in $out/report.txt"
