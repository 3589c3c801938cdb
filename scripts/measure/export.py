#!/usr/bin/env python3
"""How long exports take: anew, and from the cache, each in a process of its own.

    .venv/bin/python scripts/measure/export.py [NAME ...] [--runs 1]

Seconds are those of the core that the export runs on, beside them those of the clock; `ratio` is what
the first take of their limit. Imports are not counted. GPT-2 needs transformers, ResNet-50 torchvision.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Seconds of one core: what somebody waits for before training begins.
LIMITS = {"gpt2": 10.0, "lstm128": 30.0, "resnet50": 15.0}
FROM_CACHE = 2.0


def gpt2() -> dict:
    """124 million parameters, 1,024 tokens, as transformers has it by default."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    return {
        "model": lambda: GPT2LMHeadModel(GPT2Config()),
        "make_inputs": lambda batch: (torch.randint(0, 50257, (batch, 1024)),),
        "loss_fn": lambda model, tokens: model(input_ids=tokens, labels=tokens).loss,
        "optimizer": lambda parameters: torch.optim.AdamW(parameters, lr=1e-4),
    }


def lstm128() -> dict:
    """A language model of one recurrent layer over 128 tokens, whose steps are written out."""
    import torch
    from torch import nn

    class Language(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(10_000, 256)
            self.lstm = nn.LSTM(256, 512, batch_first=True)
            self.head = nn.Linear(512, 10_000)

        def forward(self, tokens):
            return self.head(self.lstm(self.embed(tokens))[0])

    return {
        "model": Language,
        "make_inputs": lambda batch: (torch.randint(0, 10_000, (batch, 129)),),
        "loss_fn": lambda model, tokens: nn.functional.cross_entropy(
            model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()
        ),
        "optimizer": lambda parameters: torch.optim.Adam(parameters, lr=1e-3),
    }


def resnet50() -> dict:
    import torch
    import torchvision

    return {
        "model": torchvision.models.resnet50,
        "make_inputs": lambda batch: (
            torch.randn(batch, 3, 224, 224), torch.randint(0, 1000, (batch,)),
        ),
        "loss_fn": lambda model, image, label: torch.nn.functional.cross_entropy(
            model(image), label
        ),
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    }  # fmt: skip


MODELS = {"gpt2": gpt2, "lstm128": lstm128, "resnet50": resnet50}


def run_here(name: str, folder: str) -> None:
    """One export; prints what it took."""
    sys.path.insert(0, str(ROOT / "python"))
    import torch
    import torch._dynamo  # which the first trace of a process imports

    import heterog

    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    case = MODELS[name]()
    clock, core = time.perf_counter(), time.process_time()
    step = heterog.export_training_step(**case, name=name, cache=folder)
    done = {"clock": time.perf_counter() - clock, "core": time.process_time() - core}
    print(json.dumps(done | {"operators": len(step.graph["ops"]), "checked": step.checked}))


def measure(name: str, folder: str) -> dict:
    done = subprocess.run(
        [sys.executable, __file__, "--here", folder, name],
        stdout=subprocess.PIPE, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MODELS))
    parser.add_argument("--runs", type=int, default=1, help="the fastest of so many counts")
    parser.add_argument("--here", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in MODELS]
    if unknown:
        parser.error(f"{unknown[0]} is not known; there are {', '.join(MODELS)}")
    if options.here:
        run_here(options.names[0], options.here)
        return
    print(f"load before: {os.getloadavg()[0]:.2f}, of {os.cpu_count()} cores")
    print(f"{'model':10} {'operators':>9} {'':10} {'core s':>7} {'clock s':>8} {'limit':>6} {'ratio':>6}")
    for name in options.names or MODELS:
        rows: dict[str, list] = {"anew": [], "from cache": []}
        for _ in range(options.runs):
            with tempfile.TemporaryDirectory() as folder:
                for row in rows.values():
                    row.append(measure(name, folder))
        for kind, runs in rows.items():
            best = min(runs, key=lambda run: run["core"])
            limit = LIMITS[name] if kind == "anew" else FROM_CACHE
            print(f"{name:10} {best['operators']:9,} {kind:10} {best['core']:7.2f} "
                  f"{best['clock']:8.2f} {limit:6.0f} {best['core'] / limit:6.2f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
