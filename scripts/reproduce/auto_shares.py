"""What heterog.auto_shares gains over even shares, and what it predicted (docs/auto_shares.md).

    sudo .venv/bin/python scripts/reproduce/auto_shares.py [--rounds 15] [--repeat 3]

Each rank is a process of one thread, joined to the others by gloo, and capped by the kernel to a
part of a core (a control group with a quota in every 10 ms), so that two or three of them have what
they would have on a machine of their own, whatever else runs here: all caps together are at most
one core. Three ranks on two cores would otherwise take each other's time, and a rank that waits
would speed up the others. Of the ranks, the last is slow: it does all its forward and backward
passes twice, or its cap is half as large.

After auto_shares, the script's own steps are timed at even shares and at those that were found, in
turn, three steps each, round after round. "Measured" is the ratio of the medians, "predicted" what
auto_shares said, without the whole steps that it times at the shares it has found. Times, ratios
and shares are the medians of the runs. Needs root, for
control groups. Writes OUT/table.json beside the table.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from cap import PERIOD, Cap

ROOT = Path(__file__).resolve().parent.parent.parent
STEPS = 3  # of one kind in a row

# Name, parts of a core, whether the last rank does its work twice.
SETUPS = {
    "2 ranks, one works twice": ([0.45, 0.45], True),
    "2 ranks, one at half speed": ([0.6, 0.3], False),
    "3 ranks, one works twice": ([0.32, 0.32, 0.32], True),
    "3 ranks, one at half speed": ([0.4, 0.4, 0.2], False),
}
MODELS = ("convolutions", "transformer")
BATCH = {"convolutions": 96, "transformer": 48}


def build(name: str):
    """A model and a dataset for it."""
    import torch
    from torch import nn
    from torch.utils.data import TensorDataset

    torch.manual_seed(0)
    if name == "convolutions":
        layers = [nn.Conv2d(3, 64, 3, stride=2, padding=1), nn.ReLU()]
        layers += [nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1)]
        layers += [nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(1024, 10)]
        return nn.Sequential(*layers), TensorDataset(
            torch.randn(480, 3, 32, 32), torch.randint(0, 10, (480,))
        )
    layer = nn.TransformerEncoderLayer(256, 4, 512, dropout=0.0, batch_first=True)
    model = nn.Sequential(
        nn.Embedding(1000, 256), nn.TransformerEncoder(layer, 2), nn.Flatten(), nn.Linear(32 * 256, 10)
    )
    data = TensorDataset(torch.randint(0, 1000, (480, 32)), torch.randint(0, 10, (480,)))
    return model, data


def rank_main(options) -> None:
    import torch
    import torch.distributed as dist
    from torch.nn import functional as F
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler

    import heterog

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=options.meet, rank=options.rank, world_size=options.world
    )
    model, data = build(options.model)
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(ddp.parameters())

    def step(batch):
        x, label = batch
        optimizer.zero_grad()
        if options.twice:
            with ddp.no_sync():
                F.cross_entropy(ddp(x), label).backward()
            optimizer.zero_grad()
        F.cross_entropy(ddp(x), label).backward()
        optimizer.step()

    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=BATCH[options.model] // options.world, sampler=sampler)
    begun = time.perf_counter()
    loader = heterog.auto_shares(ddp, loader, step, rebalance=None)
    begun = time.perf_counter() - begun
    found = loader.found
    batches = {}
    for split in (found.even, found.samples_per_rank):
        size = split[options.rank]
        batches[size] = [torch.stack(column) for column in zip(*(data[i] for i in range(size)))]

    kinds = (found.even, found.samples_per_rank)
    seconds = torch.zeros(options.rounds, len(kinds), dtype=torch.float64)
    for number in range(options.rounds):
        for kind, split in enumerate(kinds):
            dist.barrier()
            start = time.perf_counter()
            for _ in range(STEPS):
                loader.weights.start(split[options.rank], total=sum(split))
                step(batches[split[options.rank]])
            seconds[number, kind] = (time.perf_counter() - start) / STEPS
    dist.all_reduce(seconds, dist.ReduceOp.MAX)
    if options.rank == 0:
        even, uneven = (statistics.median(column) for column in seconds.T.tolist())
        result = {
            "shares": found.samples_per_rank,
            "even": even,
            "uneven": uneven,
            "measured": even / uneven,
            "predicted": found.predicted_speed_up,
            "said": found.speed_up,
            "all_reduce": found.all_reduce_seconds,
            "bytes": found.all_reduce_bytes,
            "leave_out": [
                [list(ranks), without.gain] for ranks, without in found.leave_out.items()
            ],
            "seconds": begun,
            "times": [[time.fixed, time.per_sample] for time in found.times],
        }
        Path(options.out).write_text(json.dumps(result), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def run(
    model: str, parts: list[float], twice: bool, rounds: int, folder: Path, meet="", prefixes=None
) -> dict:
    """Ranks with these parts of a core, each started with its prefix."""
    world = len(parts)
    out = folder / "result.json"
    out.unlink(missing_ok=True)
    if not meet:
        (folder / "meet").unlink(missing_ok=True)
        meet = f"file://{folder / 'meet'}"
    caps, processes = [], []
    try:
        for rank, part in enumerate(parts):
            cap = Cap(str(rank), part)
            caps.append(cap)
            command = [*(prefixes[rank] if prefixes else []), sys.executable, __file__]
            command += ["--rank", rank, "--world", world, "--model", model, "--meet", meet]
            command += ["--out", out, "--rounds", rounds]
            command += ["--twice"] if twice and rank == world - 1 else []
            environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "python")}
            words = [str(word) for word in command]
            processes.append(
                subprocess.Popen(words, env=environment, preexec_fn=cap.add_self, stdout=sys.stderr)
            )
        codes = [process.wait() for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
        for cap in caps:
            cap.remove()
    if not out.exists():
        sys.exit(f"{model} on {parts}: ranks ended with {codes}")
    return json.loads(out.read_text(encoding="utf-8"))


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return "unknown processor"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--repeat", type=int, default=3, help="runs of each row")
    parser.add_argument("--only", help="setups whose name has this")
    parser.add_argument("--out", default="out/auto_shares")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--world", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    parser.add_argument("--meet", help=argparse.SUPPRESS)
    parser.add_argument("--twice", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        rank_main(options)
        return
    folder = Path(options.out).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{os.cpu_count()} cores of {processor()}; caps of {PERIOD / 1000:g} ms")
    print("| ranks | model | samples | even | found | speed-up measured | predicted | off, each run |")
    print("|---|---|---|---|---|---|---|---|")
    table = []
    for setup in SETUPS:
        if options.only and options.only not in setup:
            continue
        for model in MODELS:
            runs = [
                run(model, *SETUPS[setup], options.rounds, folder) for _ in range(options.repeat)
            ]
            table.append({"setup": setup, "model": model, "runs": runs})
            print_row(table[-1])
    (folder / "table.json").write_text(json.dumps(table, indent=1), encoding="utf-8")
    errors = sorted(abs(off(run)) for row in table for run in row["runs"])
    print(
        f"{len(errors)} runs: predictions are off by {100 * statistics.median(errors):.0f} % in the "
        f"median, {100 * errors[-1]:.0f} % at most"
    )


def off(run: dict) -> float:
    return run["predicted"] / run["measured"] - 1


def print_row(row: dict) -> None:
    """Medians over the runs; the errors of each."""
    runs = row["runs"]
    even, uneven, measured, predicted = (
        statistics.median(run[name] for run in runs)
        for name in ("even", "uneven", "measured", "predicted")
    )
    shares = sorted(runs, key=lambda run: run["measured"])[len(runs) // 2]["shares"]
    print(
        f"| {row['setup']} | {row['model']} | {' '.join(map(str, shares))} | {1e3 * even:.0f} ms "
        f"| {1e3 * uneven:.0f} ms | {measured:.2f} | {predicted:.2f} "
        f"| {', '.join(f'{100 * off(run):+.0f}' for run in runs)} % |",
        flush=True,
    )


if __name__ == "__main__":
    main()
