"""Tries what of heterog runs beside the installed PyTorch; scripts/torch_versions.sh calls it.

    PYTHON scripts/try_torch.py

PYTHON is that of an environment in which the wheel is installed. Prints one row: `ok`, `refused` (in
one line, where that is what this version should get) or `FAILED` for

    shares   auto_shares and weighted gradients of two ranks of unequal batches, beside one process
    export   a training step, by `heterog export`
    planner  `heterog plan` and `explain` of a graph of the wheel
    library  `heterog plan`, `verify` and `run` of the exported graph
    runner   get_runner of two devices, beside PyTorch's own steps

Exit code 1 if one failed.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

RANK = '''
import sys
import torch, torch.distributed as dist, torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
import heterog

def data():
    torch.manual_seed(0)
    return TensorDataset(torch.randn(96, 8), torch.randint(0, 4, (96,)))

def net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))

def weights(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])

def alone():
    model, optimizer = net(), None
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for start in range(0, 96, 24):
        x, y = data()[start : start + 24]
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return weights(model)

def uneven(rank, file):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + file, rank=rank, world_size=2)
    model = DistributedDataParallel(net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    sampler = heterog.UnevenBatchSampler(data(), [17, 7], rank=rank, shuffle=False)
    loader = DataLoader(data(), batch_sampler=sampler)
    weighted = heterog.weighted_gradients(model, sampler)
    for x, y in weighted.batches(loader):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    off = (weights(model) - alone()).abs().max().item()
    assert off < 1e-5, f"off by {off}"
    # The one line, which measures.
    model = DistributedDataParallel(net())
    plain = DataLoader(data(), batch_size=12, sampler=DistributedSampler(data(), 2, rank))
    loader = heterog.auto_shares(model, plain, lambda b: F.cross_entropy(model(b[0]), b[1]))
    seen = torch.tensor([sum(len(y) for _, y in loader)])
    dist.all_reduce(seen)
    assert seen.item() == 96, f"{seen.item()} samples of 96"
    assert not [name for name in sys.modules if name.startswith(("heterog.export", "heterog.base.native"))]
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(uneven, (sys.argv[1],), 2)
'''
STEP = '''
import torch
from torch import nn
from torch.nn import functional as F

def training():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 4))
    return {"model": model, "make_inputs": lambda n: (torch.randn(n, 1, 8, 8), torch.randint(0, 4, (n,))),
            "loss_fn": lambda model, x, y: F.cross_entropy(model(x), y),
            "optimizer": torch.optim.Adam(model.parameters(), lr=1e-2)}
'''
RUNNER = '''
import torch
from torch import nn
from torch.nn import functional as F
import heterog

def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))

loss_fn = lambda model, x, y: F.cross_entropy(model(x), y)
make_inputs = lambda n: (torch.randn(n, 16), torch.randint(0, 4, (n,)))
model, plain = net(), net()
own = torch.optim.Adam(plain.parameters(), lr=1e-2)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
runner = heterog.get_runner(model, make_inputs, loss_fn, optimizer, "cpu:2", {"batch": 24})
for _ in range(4):
    batch = make_inputs(24)
    own.zero_grad()
    expected = loss_fn(plain, *batch)
    expected.backward()
    own.step()
    assert abs(runner.step(batch) - expected.item()) < 1e-5
runner.sync_to_model()
runner.close()
for a, b in zip(model.parameters(), plain.parameters()):
    assert torch.allclose(a, b, atol=1e-5)
'''


def finished(words: list[str], folder: str) -> subprocess.CompletedProcess:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": folder, "HETEROG_PYTHON": sys.executable}
    for name in ("HETEROG_LIBRARY", "HETEROG_BIN", "PYTHONPATH"):
        environment.pop(name, None)  # the wheel is tried, and nothing beside it
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


def outcome(commands: list[list[str]], folder: str, serves: bool) -> str:
    """`serves`: whether this version should get it; one that should not is refused in one line."""
    for words in commands:
        ended = finished(words, folder)
        last = (ended.stderr.strip().splitlines() or [""])[-1]
        if not serves:
            why = "torch" in last or "pip install heterog" in last
            refused = ended.returncode != 0 and "is installed" in last and why
            return "refused" if refused else f"FAILED (not refused: {last[-200:]})"
        if ended.returncode != 0:
            return f"FAILED ({' '.join(words[:2])}: {last[-300:]})"
    return "ok"


def main() -> int:
    import torch
    from heterog.base.version import EXPORTER_FROM, libraries, library_for, minor_version, native_packages

    version = torch.__version__
    exports = minor_version(version) >= EXPORTER_FROM
    packages = native_packages()
    runs = exports and bool(library_for(version, libraries(packages)))
    program = str(Path(sys.executable).with_name("heterog"))
    problem = ["--graph", "lenet5", "--cluster", "local-2cpu"]
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("rank.py", RANK), ("step.py", STEP), ("runner.py", RUNNER)):
            Path(folder, name).write_text(text, encoding="utf-8")
        own = ["--graph", "own.json.gz", "--cluster", "local-2cpu"]
        row = {
            "shares": outcome([[sys.executable, "rank.py", f"{folder}/meeting"]], folder, True),
            "export": outcome([[program, "export", "step.py:training", "--out", "own.json.gz"]], folder, exports),
            "planner": outcome(
                [
                    [program, "plan", *problem, "--batch", "16", "--out", "plan.json"],
                    [program, "explain", *problem, "--plan", "plan.json"],
                ],
                folder,
                bool(packages),
            ),
            "library": outcome(
                [
                    *([[program, "plan", *own, "--batch", "16", "--out", "plan.json"]] if runs else []),
                    [program, "verify", *own, "--plan", "plan.json"],
                    [program, "run", *own, "--plan", "plan.json", "--steps", "3"],
                ],
                folder,
                runs,
            ),
            "runner": outcome([[sys.executable, "runner.py"]], folder, runs),
        }
    print(f"torch {version}: " + ", ".join(f"{name} {what}" for name, what in row.items()), flush=True)
    return any(what.startswith("FAILED") for what in row.values())


if __name__ == "__main__":
    sys.exit(main())
