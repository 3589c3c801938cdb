"""Unequal batches where gradients are averaged by what heterog has no hook in: FSDP1 and DeepSpeed's
ZeRO (docs/auto_shares.md).

    .venv/bin/python scripts/reproduce/averaged_elsewhere.py [--only fsdp1 zero1 …]

Two and three ranks over gloo take 6 2 and 5 2 1 samples of every batch of 8, from a
heterog.UnevenBatchSampler, the last batch is a rest of 3; AdamW, 12 batches. A number is the largest
relative difference of a parameter from one process on the whole batches: with the loss multiplied by
ranks x own / total, and as it is. ZeRO needs DeepSpeed (`pip install deepspeed`, a compiler and
ninja): what is not installed is left out. It computes in float32, FSDP1 in
float64, but for its own clipping, which takes norms in single precision.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SHARES = {2: [6, 2], 3: [5, 2, 1]}
LENGTH, BATCH, CLIP = 91, 8, 0.05  # 11 batches and a rest
KINDS = {
    "fsdp1": "FSDP1", "fsdp1, accumulated": "FSDP1, 2 passes under no_sync()",
    "fsdp1, resumed": "FSDP1, from a whole checkpoint", "fsdp1 in float32, clipped": "FSDP1 in float32, clipped",
    "fsdp1, norm": "FSDP1, SyncBatchNorm",
    "zero1": "ZeRO-1, clipped", "zero2": "ZeRO-2, clipped", "zero3": "ZeRO-3, clipped",
    "zero1, accumulated": "ZeRO-1, clipped, 2 passes", "zero2, accumulated": "ZeRO-2, clipped, 2 passes",
}  # fmt: skip


def build(kind):
    import torch

    torch.manual_seed(0)
    norm = [torch.nn.BatchNorm1d(16)] if "norm" in kind else []
    model = torch.nn.Sequential(torch.nn.Linear(6, 16, bias=not norm), *norm, torch.nn.Tanh(), torch.nn.Linear(16, 3))
    return model.double() if is_double(kind) else model


def is_double(kind) -> bool:
    """FSDP1's clip_grad_norm_ takes norms in single precision alone."""
    return kind.startswith("fsdp1") and "float32" not in kind


def is_clipped(kind) -> bool:
    return kind.startswith("zero") or "clipped" in kind


def dataset(kind):
    import torch

    torch.manual_seed(1)
    length = LENGTH - LENGTH % BATCH if "norm" in kind else LENGTH  # which wants samples of each rank
    x, label = torch.randn(length, 6), torch.randint(0, 3, (length,))
    return torch.utils.data.TensorDataset(x.double() if is_double(kind) else x, label)


def batches(kind, rank, world, weighed):
    """Of this rank, with what the loss is multiplied by."""
    from torch.utils.data import DataLoader

    import heterog

    data = dataset(kind)
    sampler = heterog.UnevenBatchSampler(data, SHARES[world], rank)
    for number, batch in enumerate(DataLoader(data, batch_sampler=sampler)):
        sizes = sampler.sizes(number)
        yield batch, world * sizes[rank] / sum(sizes) if weighed else 1.0


def loss_of(model, batch):
    from torch.nn import functional as F

    return F.cross_entropy(model(batch[0]), batch[1])


def alone(kind) -> list:
    """One process on the whole batches."""
    import torch
    from torch.utils.data import DataLoader

    model, passes = build(kind), 2 if "accumulated" in kind else 1
    update = torch.optim.AdamW(model.parameters(), lr=0.01)
    for number, batch in enumerate(DataLoader(dataset(kind), BATCH)):
        (loss_of(model, batch) / passes).backward()
        if (number + 1) % passes == 0:
            if is_clipped(kind):
                torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            update.step()
            update.zero_grad()
    return [p.detach() for p in model.parameters()]


def by_fsdp1(kind, rank, world, weighed) -> list:
    import torch
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
    from torch.distributed.fsdp import FullyShardedDataParallel

    cpu = torch.device("cpu")

    def wrapped(module):
        return FullyShardedDataParallel(module, device_id=cpu, use_orig_params=True)

    def begun():
        model = build(kind)
        model[0] = wrapped(model[0])
        model = wrapped(model)
        if "norm" in kind:
            sys.path.append(str(ROOT / "python/tests"))
            from cpu_sync_batch_norm import synchronised

            synchronised(model)
        return model, torch.optim.AdamW(model.parameters(), lr=0.01)

    passes = 2 if "accumulated" in kind else 1
    model, update = begun()
    for number, (batch, factor) in enumerate(batches(kind, rank, world, weighed)):
        loss = loss_of(model, batch) * factor / passes
        if (number + 1) % passes:
            with model.no_sync():
                loss.backward()
            continue
        loss.backward()
        if is_clipped(kind):
            model.clip_grad_norm_(CLIP)
        update.step()
        update.zero_grad()
        if "resumed" in kind and number == 4:
            whole = StateDictOptions(full_state_dict=True)
            of_model, of_update = get_state_dict(model, update, options=whole)
            model, update = begun()
            set_state_dict(model, update, model_state_dict=of_model, optim_state_dict=of_update, options=whole)
    with FullyShardedDataParallel.summon_full_params(model):
        return [p.detach().clone() for p in model.parameters()]


def by_deepspeed(kind, rank, world, weighed) -> list:
    import deepspeed
    import torch

    passes = 2 if "accumulated" in kind else 1
    settings = {
        "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": passes,
        "gradient_clipping": CLIP, "zero_optimization": {"stage": int(kind[4])},
        "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
    }  # fmt: skip
    model = build(kind)
    update = torch.optim.AdamW(model.parameters(), lr=0.01)
    engine, *_ = deepspeed.initialize(model=model, optimizer=update, config=settings)
    for batch, factor in batches(kind, rank, world, weighed):
        engine.backward(loss_of(engine, batch) * factor)  # it divides by its passes
        engine.step()
    parameters = list(engine.module.parameters())
    whole = deepspeed.zero.GatheredParameters(parameters, enabled=kind.startswith("zero3"))
    with whole:
        return [p.detach().clone() for p in parameters]


def rank_main(kind: str, out: Path) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    run = by_fsdp1 if kind.startswith("fsdp1") else by_deepspeed
    if run is by_deepspeed:
        import deepspeed

        deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False)
    else:
        dist.init_process_group("gloo")
    expected, off = alone(kind), []
    for weighed in (True, False):
        found = run(kind, rank, world, weighed)
        off.append(max(((a - b).norm() / b.norm()).item() for a, b in zip(found, expected, strict=True)))
    if rank == 0:
        out.write_text(json.dumps(off), encoding="utf-8")
    dist.barrier()
    os._exit(0)  # threads of gloo and DeepSpeed do not always end with the interpreter


def found(kind: str, world: int) -> tuple[float, float]:
    """How far parameters are off, weighed and not."""
    paths = os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "off.json"
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
        command += [str(world), __file__, "--rank-of", kind, "--out", str(out)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{kind}: {done.stderr[-3000:]}")
        return tuple(json.loads(out.read_text(encoding="utf-8")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--rank-of", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank_of:
        rank_main(options.rank_of, options.out)
        return
    print("| | 2 ranks, weighed | as it is | 3 ranks, weighed | as it is |")
    print("|---|---|---|---|---|")
    for kind in options.only:
        if kind.startswith("zero") and importlib.util.find_spec("deepspeed") is None:
            print(f"{kind}: deepspeed is not installed", file=sys.stderr)
            continue
        cells = [f"{off:.0e}" for world in (2, 3) for off in found(kind, world)]
        print(f"| {KINDS[kind]} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
