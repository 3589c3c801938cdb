"""Predicted against measured steps of `plan --for fsdp2` under fully_shard, on this machine
(docs/engines.md).

    sudo .venv/bin/python scripts/reproduce/fsdp2_steps.py [--models gpt2 llama] [--rounds 12] [--repeat 2]

Models and caps are those of pipeline_steps.py: a GPT-2 and a Llama of transformers, ranks of one
thread over gloo. Rank 1 has half as much of a core as rank 0 (a control group with a quota in every
10 ms). Costs are two profiles that both ranks measure at once in this way, `heterog profile
--in-steps`; the link is a line through times of gather and scatter of two such ranks. Even shares
(ev-ar) and planned ones are handed over (`hand-over --to fsdp2`), and trained by
heterog.auto_shares(shares=FILE) under fully_shard(reshard_after_forward=False), a call a layer and
one around all. "Measured" is the median of a step with its update, of the slower rank, of --rounds
steps after three to warm up. "Scaled" is "predicted", with the slower rank's computation by PyTorch
in place of what is predicted of that: passes of its samples without fully_shard, apart from the other
rank, and the update of its rows as the steps themselves took it (an optimizer goes through much Python
for parameters in rows). Each repetition profiles, plans and measures anew. Needs root, for the caps,
and a build (--preset).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cap import Cap, run_capped
from pipeline_steps import KEEPS_MEMORY, LENGTH, ROOT, WORDS, build, export, loss_fn, optimizer


BATCH = 24
PARTS = (0.9, 0.45)  # of a core
TYPES = ("CPU", "CPU-slow")  # by which plans know the two apart
SIZES = (1 << 16, 1 << 20, 1 << 22, 1 << 24)  # bytes of whole tensors


def together(commands) -> None:
    """Each command as a rank, on its part of a core of its own."""
    caps = [Cap(f"fsdp2-{rank}", part) for rank, part in enumerate(PARTS)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "python")} | KEEPS_MEMORY

    run_capped(commands, caps, lambda rank: rank % os.cpu_count(), environment)


def ranks_of(what, folder, *words) -> list:
    """What the ranks found."""
    (folder / f"meet-{what}").unlink(missing_ok=True)
    together([[sys.executable, __file__, "--rank-of", what, rank, folder, *words] for rank in range(len(PARTS))])
    return [json.loads((folder / f"{what}{rank}.json").read_text(encoding="utf-8")) for rank in range(len(PARTS))]


def rank_main(what, rank, folder, *words) -> None:
    import torch
    import torch.distributed as dist

    rank, folder = int(rank), Path(folder)
    torch.set_num_threads(1)
    meet = f"file://{folder}/meet-{what}"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=len(PARTS))
    found = {"link": link, "alone": alone, "train": train}[what](rank, *words)
    (folder / f"{what}{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()
    os._exit(0)  # threads of gloo do not always end with the interpreter


def link(rank) -> list[float]:
    """Seconds of a gather or a scatter of a tensor of each size, the mean of both."""
    import torch
    import torch.distributed as dist

    found = []
    for size in SIZES:
        whole, part, times = torch.zeros(size // 4), torch.zeros(size // 4 // len(PARTS)), []
        for _ in range(15):
            dist.barrier()
            begin = time.perf_counter()
            dist.all_gather_into_tensor(whole, part)
            dist.reduce_scatter_tensor(part, whole)
            times.append((time.perf_counter() - begin) / 2)
        found.append(statistics.median(times))
    return found


def alone(rank, name, rounds, *sizes) -> list[float]:
    """Seconds of PyTorch's passes of this rank's samples of each deal ("12,12"), without fully_shard."""
    import torch

    found = []
    for deal in sizes:
        model = build(name)
        update = optimizer(model.parameters())
        words = torch.randint(0, WORDS, (int(deal.split(",")[rank]), LENGTH))
        times = []
        for _ in range(int(rounds) + 3):
            begin = time.perf_counter()
            update.zero_grad()
            loss_fn(model(input_ids=words, use_cache=False), words).backward()
            times.append(time.perf_counter() - begin)
            update.step()
        found.append(statistics.median(times[3:]))
    return found


def train(rank, name, rounds, shares) -> dict[str, float]:
    """Seconds of a step at the shares of the file, and of the update in it."""
    import torch
    from torch.distributed.fsdp import fully_shard
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    import heterog

    model, steps = build(name), int(rounds) + 3
    for layer in next(module for module in model.modules() if isinstance(module, torch.nn.ModuleList)):
        fully_shard(layer, reshard_after_forward=False)
    fully_shard(model, reshard_after_forward=False)
    update = optimizer(model.parameters())

    def loss(batch):
        return loss_fn(model(input_ids=batch[0], use_cache=False), batch[0])

    words = torch.randint(0, WORDS, (BATCH * steps, LENGTH), generator=torch.Generator().manual_seed(3))
    data, parts = TensorDataset(words), json.loads(Path(shares).read_text(encoding="utf-8")).get("micro_batches", 1)
    loader = DataLoader(data, batch_size=BATCH // len(PARTS) // parts, sampler=DistributedSampler(data))
    loader = heterog.auto_shares(model, loader, loss, batch=BATCH, accumulate=parts, shares=shares, say=None)
    times, updates, begin = [], [], 0.0
    for number, batch in enumerate(loader):
        if number % parts == 0:
            begin = time.perf_counter()
            update.zero_grad()
        model.set_requires_gradient_sync(loader.last)
        model.set_reshard_after_backward(loader.last)
        (loss(batch) / parts).backward()
        if loader.last:
            passed = time.perf_counter()
            update.step()
            updates.append(time.perf_counter() - passed)
            times.append(time.perf_counter() - begin)
    return {"step": statistics.median(times[3:]), "update": statistics.median(updates[3:])}


def cluster_of(ranks: list[list[float]]) -> dict:
    """Two devices, and a link by which gathers of whole tensors take what they took: each rank sends
    half of one to the other."""
    seconds = [max(both) for both in zip(*ranks, strict=True)]
    bandwidth = (SIZES[-1] - SIZES[1]) / len(PARTS) / max(1e-9, seconds[-1] - seconds[1])
    fabric = {"kind": "switch", "bandwidth_bytes_per_second": bandwidth, "latency_seconds": max(1e-7, seconds[0])}
    devices = [{"model": model} for model in TYPES]
    return {"format": "heterog-cluster", "version": 1, "name": "ranks",
            "machines": [{"name": "box", "devices": devices, "fabric": fabric}]}  # fmt: skip


def one(heterog, name, rounds, folder) -> dict[str, dict]:
    graph, plan = folder / f"{name}.json.gz", folder / "plan.json"
    profiles = [folder / f"{model}.profile.json" for model in TYPES]
    for path in [*profiles, *folder.glob("*.partial")]:
        path.unlink(missing_ok=True)
    slices = ",".join(map(str, (BATCH // 3, BATCH // 2, 2 * BATCH // 3)))
    together(
        [[heterog, "profile", "--in-steps", "--graph", graph, "--device", model, "--out", path, "--threads", 1,
          "--repeat", 5, "--slices", slices, "--force"] for model, path in zip(TYPES, profiles, strict=True)]
    )  # fmt: skip
    cluster = folder / "ranks.json"
    cluster.write_text(json.dumps(cluster_of(ranks_of("link", folder))), encoding="utf-8")
    files = ["--graph", graph, "--cluster", cluster]
    for path in profiles:
        files += ["--profile", path]

    def planned(batch, *words) -> dict:
        command = [heterog, "plan", *files, "--batch", batch, *words, "--out", plan, "--json"]
        return json.loads(subprocess.run([str(w) for w in command], check=True, stdout=subprocess.PIPE).stdout)

    deals = {}
    for kind, words in (("even", ("--planner", "ev-ar")), ("planned", ("--for", "fsdp2"))):
        planned(BATCH, *words)
        shares = folder / f"{kind}.json"
        command = [heterog, "hand-over", *files, "--plan", plan, "--to", "fsdp2", "--out", shares]
        subprocess.run([str(w) for w in command], check=True, stdout=subprocess.DEVNULL)
        deals[kind] = json.loads(shares.read_text(encoding="utf-8"))
        if len(deals[kind]["samples_per_rank"]) < len(PARTS):
            sys.exit(f"{kind} shares leave a rank out, which is then no training of {len(PARTS)}: {deals[kind]}")
    samples = [[n * deal.get("micro_batches", 1) for n in deal["samples_per_rank"]] for deal in deals.values()]
    of_torch = ranks_of("alone", folder, name, rounds, *(",".join(map(str, each)) for each in samples))
    found = {}
    for number, ((kind, deal), each) in enumerate(zip(deals.items(), samples, strict=True)):
        trained = ranks_of("train", folder, name, rounds, folder / f"{kind}.json")
        measured = max(rank["step"] for rank in trained)
        single = [planned(n, "--planner", f"single:box/gpu{rank}")["step_seconds"] for rank, n in enumerate(each)]
        by_torch = [times[number] + rank["update"] for times, rank in zip(of_torch, trained, strict=True)]
        longer = max(by_torch) - max(single)
        found[kind] = {"samples": each, "measured": measured, "predicted": deal["step_seconds"],
                       "scaled": deal["step_seconds"] + longer}  # fmt: skip
    return found


def row(name, kind, runs) -> str:
    of_kind = [run[kind] for run in runs]
    cells = [" ".join(map(str, of_kind[0]["samples"])), f"{1e3 * statistics.median(run['measured'] for run in of_kind):.0f} ms"]
    for what in ("predicted", "scaled"):
        cells.append(f"{1e3 * statistics.median(run[what] for run in of_kind):.0f} ms")
        cells.append(", ".join(f"{100 * (run[what] / run['measured'] - 1):+.0f} %" for run in of_kind))
    return f"| {name} | {kind} | {' | '.join(cells)} |"


def gain(runs, what) -> str:
    return ", ".join(f"{run['even'][what] / run['planned'][what]:.2f}" for run in runs)


def main() -> None:
    if sys.argv[1:2] == ["--rank-of"]:
        rank_main(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", nargs="+", choices=("gpt2", "llama"), default=["gpt2", "llama"])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--preset", default="release", help="whose build: build/PRESET")
    options = parser.parse_args()
    heterog = ROOT / "build" / options.preset / "bin" / "heterog"
    print("| model | shares | samples | measured | predicted | off, each run | scaled | off, each run |")
    print("|" + "---|" * 8)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        gains = []
        for name in options.models:
            export(name, folder / f"{name}.json.gz")
            runs = [one(heterog, name, options.rounds, folder) for _ in range(options.repeat)]
            print(*(row(name, kind, runs) for kind in runs[0]), sep="\n", flush=True)
            gains.append(f"{name}: planned shares are {gain(runs, 'measured')} × as fast as even ones, "
                         f"predicted {gain(runs, 'predicted')}, scaled {gain(runs, 'scaled')}")  # fmt: skip
        print("", *gains, sep="\n")


if __name__ == "__main__":
    main()
