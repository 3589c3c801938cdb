#!/usr/bin/env python3
"""Memory of a step of GPT-2 (124M, 1,024 tokens): predicted, beside what PyTorch allocates.

    PYTHONPATH=python .venv/bin/python scripts/measure/activation_memory.py [--batch 2] [--attention math]

PyTorch's figures are the allocations and releases of its CPU allocator (torch.profiler), during
forward and backward; ours those of `heterog simulate` for a plan on one device. Both without what
is there before the step: parameters, optimizer state, inputs. "after forward" is what backward
needs; "peak" has the gradients, none of which is given back before the update.
"""

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, record_function
from transformers import GPT2Config, GPT2LMHeadModel

import heterog

ROOT = Path(__file__).resolve().parents[2]
TOKENS = 1024
LIMIT = 0.05


def model():
    torch.manual_seed(0)
    # Attention that drops weights has no kernel in PyTorch on CPUs, so nothing is dropped.
    config = GPT2Config(attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, use_cache=False)
    return GPT2LMHeadModel(config).train()


def loss_fn(net, words):
    return net(input_ids=words, labels=words).loss


def make_inputs(batch):
    return (torch.randint(0, 50257, (batch, TOKENS)),)


def allocated(batch: int) -> tuple[int, int]:
    """(after forward, peak) of eager PyTorch, bytes."""
    net, (words,) = model(), make_inputs(batch)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        with record_function("the forward pass"):
            loss = loss_fn(net, words)
        loss.backward()
    events = profiled.profiler.kineto_results.events()
    (forward,) = [e for e in events if e.name() == "the forward pass"]
    ends = forward.start_ns() + forward.duration_ns()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    held = after = peak = 0
    for time, change in changes:
        held += change
        peak = max(peak, held)
        after = held if time <= ends else after
    return after, peak


def predicted(batch: int, attention: str, program: str) -> tuple[int, int]:
    """The same, of a plan on one device."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        step = heterog.export_training_step(
            model(), make_inputs, loss_fn, lambda p: torch.optim.AdamW(p, lr=1e-4), "gpt2",
            batch=batch if batch > 3 else None, attention=attention, check=False,
        )  # fmt: skip
        step.save(path / "gpt2.json.gz")
        named = ["--graph", path / "gpt2.json.gz", "--cluster",
                 ROOT / "configs/clusters/fastt-1gpu.json"]  # fmt: skip
        plan = [program, "plan", *named, "--batch", str(batch), "--planner", "single", "--out",
                path / "plan.json"]  # fmt: skip
        # It need not fit in that device's memory.
        subprocess.run(plan, check=False, stdout=subprocess.DEVNULL)
        simulate = [program, "simulate", *named, "--plan", path / "plan.json", "--trace",
                    path / "trace.json"]  # fmt: skip
        subprocess.run(simulate, check=False, stdout=subprocess.DEVNULL)
        events = json.loads((path / "trace.json").read_text())["traceEvents"]
    phase = {op["name"]: op["phase"] for op in step.graph["ops"]}
    begins = min(
        e["ts"] for e in events if e["ph"] == "X" and phase.get(e["name"]) == "backward"
    )  # fmt: skip
    updates = min(
        e["ts"] for e in events if e["ph"] == "X" and e.get("cat") == "update"
    )  # fmt: skip
    curve = sorted((e["ts"], i, e["args"]["bytes"]) for i, e in enumerate(events) if e["ph"] == "C")
    static = curve[0][2]
    after = [held for time, _, held in curve if time < begins][-1]
    peak = max(held for time, _, held in curve if time <= updates)
    return after - static, peak - static


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--attention", choices=["one", "math"], default="one")
    options = parser.parse_args()
    program = os.environ.get("HETEROG_BIN", str(ROOT / "build/release/bin/heterog"))
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    rows = zip(
        ("after forward", "peak"),
        predicted(options.batch, options.attention, program),
        allocated(options.batch),
        strict=True,
    )
    print(f"GPT-2 124M, {TOKENS} tokens, batch {options.batch}, attention {options.attention}")
    print(f"{'':14} {'predicted':>12} {'PyTorch':>12} {'ratio':>7}   limit 1 ± {LIMIT}")
    for name, ours, theirs in rows:
        print(f"{name:14} {ours / 1e6:9.1f} MB {theirs / 1e6:9.1f} MB {ours / theirs:7.3f}")


if __name__ == "__main__":
    main()
