#!/usr/bin/env bash
# examples/digits: plain PyTorch beside runners of several plans, the table of docs/client.md. Two
# minutes. PYTHON names one that has torch and scikit-learn (pip install scikit-learn==1.7.2).
set -euo pipefail
cd "$(dirname "$0")/../.."
export PYTHONPATH=python OMP_NUM_THREADS=1
python="${PYTHON:-.venv/bin/python}"

cards="--devices V100-PCIE-16GB GTX-1080-Ti T4"
for line in "--planner ev-ar" "$cards --planner ev-ps" "$cards --planner ev-ps --double"; do
  read -ra options <<<"$line"
  echo "== $line"
  "$python" examples/digits/train.py "${options[@]}"
done
echo "== torchrun, two processes, --planner ev-ar"
"$python" -m torch.distributed.run --standalone --nproc-per-node 2 examples/digits/train.py
