#!/usr/bin/env python3
"""Counts what a training step launches on a GPU, without one: the runtime's beside eager PyTorch's.

    scripts/gpu/launches.py [MODEL …]      prints a table of docs/gpu.md

The models are those of the kit with all their layers, but narrow and short, as what is launched does
not depend on sizes. The runtime runs its step on a device that only counts (tests/comm/fake_device.h),
eager PyTorch on tensors without memory. An operator that writes something counts as one launch on
both sides, attention as one each way. Wants build/dev/bin/count_launches and .venv.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "scripts/gpu")]

import models  # noqa: E402
import torch  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

SAMPLES = 2


def gpt2(layers=12):
    return models.language("narrow_gpt2", layers, 32, 2, 32, 64)


def bert_large(layers=24):
    return models.language("narrow_bert_large", layers, 32, 2, 32, 64, rate=0.1, causal=False, padded=True)


def resnet50():
    return models.resnet50()


MODELS = {"BERT-large, dropout": bert_large, "GPT-2 124M": gpt2, "ResNet-50": resnet50}


class Launches(TorchDispatchMode):
    """Operators that write something, and the bytes that they read and write."""

    def __init__(self):
        super().__init__()
        self.launches = self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if _writes(func, made):
            self.launches += 1
            tensors = [x for x in tree_leaves((args, kwargs, made)) if isinstance(x, torch.Tensor)]
            self.bytes += sum(x.numel() * x.element_size() for x in tensors)
        return made


def _writes(func, made) -> bool:
    name = func._schema.name.removeprefix("aten::")
    if name.startswith(("empty", "new_empty", "detach", "_unsafe_view")):
        return False
    if func._schema.is_mutable:
        return True
    results = [x for x in tree_leaves(made) if isinstance(x, torch.Tensor)]
    views = any(result.alias_info is not None for result in func._schema.returns)
    return bool(results) and not views


class _Attention(torch.autograd.Function):
    """PyTorch's kernel of GPUs, one launch each way."""

    @staticmethod
    def forward(ctx, q, k, v, bias, rate, causal):
        made = torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, bias, True, rate, causal)
        ctx.save_for_backward(q, k, v, bias, *made)
        ctx.rate, ctx.causal = rate, causal
        return made[0]

    @staticmethod
    def backward(ctx, gradient):
        q, k, v, bias, *made = ctx.saved_tensors
        wanted = [True, True, True, False]
        gradients = torch.ops.aten._scaled_dot_product_efficient_attention_backward(
            gradient, q, k, v, bias, *made, ctx.rate, wanted, ctx.causal)
        return (*gradients[:3], None, None, None)


def _attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False):
    bias = None
    if attn_mask is not None:  # PyTorch makes a mask a bias of the kernel's form
        bias = torch.zeros_like(attn_mask, dtype=q.dtype).masked_fill_(attn_mask.logical_not(), float("-inf"))
        bias = bias.expand(q.size(0), q.size(1), q.size(2), k.size(2))
    return _Attention.apply(q, k, v, bias, dropout_p, is_causal)


def _dropout(x, p=0.5, training=True, inplace=False):
    return torch.native_dropout(x, p, True)[0] if training and p > 0 else x


def of_eager(spec: dict) -> Launches:
    """A step of PyTorch with a fused optimizer and inputs on the device."""
    usual = F.scaled_dot_product_attention, F.dropout
    F.scaled_dot_product_attention, F.dropout = _attention, _dropout
    try:
        with torch.device("meta"):
            model = spec["model"]()
        inputs = [x.to("meta") for x in spec["make_inputs"](SAMPLES)]
        optimizer = spec["optimizer"](model.parameters())
        for counted in (False, True):  # the first step makes the optimizer's state
            with Launches() as launches:
                loss = spec["loss_fn"](model, *inputs)
                loss.backward()
                _step(optimizer)
                optimizer.zero_grad(set_to_none=True)
            if counted:
                return launches
    finally:
        F.scaled_dot_product_attention, F.dropout = usual


def _step(optimizer) -> None:
    """One call for all parameters, as the fused kernel of GPUs; tensors without memory have none."""
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    states = 2 if isinstance(optimizer, torch.optim.AdamW) else 1
    mode = torch.utils._python_dispatch._get_current_dispatch_mode()
    mode.launches += 2 if states == 2 else 1  # AdamW counts its steps in a call of its own
    mode.bytes += sum((3 + 2 * states) * p.numel() * p.element_size() for p in parameters)


def of_runtime(spec_name: str, program: Path, graph: Path) -> dict:
    from heterog.export.command import main as export

    if export(["--no-check", spec_name, "--out", str(graph)]) != 0:
        sys.exit(f"launches.py: {spec_name} was not exported")
    done = subprocess.run([program, graph, str(SAMPLES)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"launches.py: {done.stderr.strip()}")
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument("--program", type=Path, default=ROOT / "build/dev/bin/count_launches")
    options = parser.parse_args()
    print("| model | eager | heterog | /eager | bytes, /eager | copies | waits |")
    print("|---|---|---|---|---|---|---|")
    for name in options.models or MODELS:
        function = MODELS[name]
        with tempfile.TemporaryDirectory() as folder:
            graph = Path(folder) / "graph.json.gz"
            ours = of_runtime(f"{__file__}:{function.__name__}", options.program, graph)
        eager = of_eager(function())
        print(f"| {name} | {eager.launches} | {ours['launches']} | {ours['launches'] / eager.launches:.2f} | "
              f"{ours['bytes'] / eager.bytes:.2f} | {ours['copies']} | {ours['event_waits'] + ours['syncs']} |",
              flush=True)


if __name__ == "__main__":
    main()
