"""Training runs of test_gradient_weights.py, each made twice: by several processes with unequal
shares of every batch, and by one process on the whole batches."""

import contextlib
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from cpu_sync_batch_norm import synchronised
from ranks_of_tests import refusals
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import heterog

SHARES = {2: [5, 2], 3: [5, 2, 1]}
# Of 4 whole batches and a rest, of which the last rank gets nothing.
LENGTH = {2: 29, 3: 34}
BATCHES = 5
EPOCHS = 3


@dataclass
class Run:
    """One training run. `accumulate`: batches of a step, across epochs. `overflow`: the steps in
    which the loss of the last rank's first sample is infinite. `moved`: the shares change at this
    batch of every epoch."""

    accumulate: int = 1
    no_sync: bool = True
    clip: float | None = None
    overflow: tuple[int, ...] = ()
    scaled: bool = False
    norm: bool = False
    dict_output: bool = False
    decay: float = 0.0  # of a term of the loss that the model's output has no part in
    join: bool = False
    moved: int | None = None
    workers: int = 0
    ddp: dict = field(default_factory=dict)


RUNS = {
    "plain": Run(),
    "accumulated by 2": Run(accumulate=2),
    # The rest, without a sample for one rank, is the second, then the first of its three.
    "accumulated by 3": Run(accumulate=3),
    # It is the last, with which gradients are communicated.
    "accumulated by 5": Run(accumulate=5),
    "accumulated by 3, views": Run(accumulate=3, ddp={"gradient_as_bucket_view": True}),
    "accumulated, each summed": Run(accumulate=3, no_sync=False),
    "clipped": Run(clip=0.05),
    "scaled": Run(scaled=True),
    "overflow": Run(scaled=True, overflow=(2, 7)),
    "overflow, clipped, accumulated": Run(
        scaled=True, overflow=(1,), clip=0.05, accumulate=3, decay=0.3
    ),
    "join": Run(join=True),
    "moved": Run(moved=2),
    "moved, accumulated": Run(moved=2, accumulate=3),
    "moved, workers": Run(moved=4, workers=1),
    "norm": Run(norm=True),
    "norm, dict": Run(norm=True, dict_output=True),
    "norm, accumulated": Run(norm=True, accumulate=2, decay=0.3),
    "norm, clipped, overflow": Run(norm=True, clip=0.05, scaled=True, overflow=(2,)),
    "norm, small buckets": Run(norm=True, ddp={"bucket_cap_mb": 0.0005}),
}


class Dict(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return {"logits": self.inner(x), "unused": None, "scale": 1.0}


def build(run: Run) -> nn.Module:
    torch.manual_seed(1)
    norms = [nn.BatchNorm1d(9), nn.BatchNorm1d(7)] if run.norm else [nn.Tanh(), nn.Identity()]
    model = nn.Sequential(
        nn.Linear(6, 9), norms[0], nn.Tanh(), nn.Linear(9, 7), norms[1], nn.Tanh(), nn.Linear(7, 4)
    ).double()
    return Dict(model) if run.dict_output else model


def dataset(run: Run, length: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(9)
    x = torch.randn(length, 6, generator=generator, dtype=torch.float64)
    return TensorDataset(x, torch.randint(0, 4, (length,), generator=generator))


def loss_of(run: Run, model, x, y):
    out = model(x)
    loss = F.cross_entropy(out["logits"] if run.dict_output else out, y)
    if run.decay:
        loss = loss + run.decay * sum(p.square().sum() for p in model.parameters())
    return loss


def train(run: Run, model, batches, overflows) -> dict:
    """The loop of a script, for one process and for ranks; `overflows(number)` says whether this
    process's loss is infinite in a batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3, enabled=run.scaled)
    skipped = []
    parts = 0
    for number, (x, y) in enumerate(batches):
        last = (number + 1) % run.accumulate == 0
        apart = contextlib.nullcontext()
        if not last and run.no_sync and isinstance(model, DistributedDataParallel):
            apart = model.no_sync()
        with apart:
            loss = loss_of(run, model, x, y) / run.accumulate
            if overflows(number):
                loss = loss * torch.inf
            scaler.scale(loss).backward()
        parts += 1
        if not last:
            continue
        scale = scaler.get_scale()
        if run.clip:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), run.clip)
        scaler.step(optimizer)
        scaler.update()
        skipped.append(scaler.get_scale() < scale)
        optimizer.zero_grad()
    return {"skipped": skipped, "scale": scaler.get_scale()}


def result(model, said: dict) -> dict:
    state = {name: value.detach().clone() for name, value in model.state_dict().items()}
    return {"state": state} | said


def batches_of(run: Run, world: int) -> list[list[list[int]]]:
    """The samples of every batch of every epoch, by PyTorch's generator alone."""
    length, batch = LENGTH[world], sum(SHARES[world])
    epochs = []
    for epoch in range(EPOCHS):
        order = torch.randperm(length, generator=torch.Generator().manual_seed(4 + epoch)).tolist()
        if run.norm:
            order = order[: length // batch * batch]  # drop_last
        epochs.append([order[i : i + batch] for i in range(0, len(order), batch)])
    return epochs


def train_alone(run: Run, world: int) -> dict:
    data = dataset(run, LENGTH[world])
    model = build(run)
    batches = [data[rows] for epoch in batches_of(run, world) for rows in epoch]
    said = train(run, model, batches, lambda number: number in run.overflow)
    return result(model, said)


def train_shared(run: Run, rank: int, world: int) -> dict:
    data = dataset(run, LENGTH[world])
    sampler = heterog.UnevenBatchSampler(
        data, SHARES[world], rank, shuffle=True, seed=4, drop_last=run.norm
    )
    options = {"prefetch_factor": 1, "persistent_workers": True} if run.workers else {}
    loader = DataLoader(data, batch_sampler=sampler, num_workers=run.workers, **options)
    model = DistributedDataParallel(build(run), **run.ddp)
    if run.norm:
        synchronised(model.module)
    weights = heterog.weighted_gradients(model, sampler)
    seen = []

    def batches():
        for epoch in range(EPOCHS):
            sampler.set_epoch(epoch)
            for number, batch in enumerate(weights.batches(loader)):
                if run.moved is not None and number == run.moved - 2:
                    moved = list(reversed(sampler.samples_per_rank))
                    sampler.change_shares(moved, run.moved)
                seen.append(len(batch[0]))
                yield batch

    last = rank == world - 1
    with model.join() if run.join else contextlib.nullcontext():
        said = train(run, model, batches(), lambda number: last and number in run.overflow)
    return result(model.module, said) | {"seen": seen}


# Rows of each rank's batches, where ranks have different numbers of them; by world.
OWN_BATCHES = {
    2: [[[0, 1, 2], [3, 4], [5], [6, 7, 8], [9]], [[10, 11], [12, 13, 14, 15]]],
    3: [[[0, 1, 2], [3, 4], [5]], [[10, 11], [12, 13, 14, 15], [16], [17, 18], [19]], [[20]]],
}


def joined_alone(world: int) -> dict:
    run = Run()
    data = dataset(run, 21)
    own = OWN_BATCHES[world]
    steps = max(map(len, own))
    rows = [[row for part in own for row in (part[k] if k < len(part) else [])] for k in range(steps)]
    model = build(run)
    return result(model, train(run, model, [data[of_step] for of_step in rows], lambda _: False))


def joined_shared(rank: int, world: int) -> dict:
    run = Run()
    data = dataset(run, 21)
    model = DistributedDataParallel(build(run))
    weights = heterog.weighted_gradients(model)

    def batches():
        for rows in OWN_BATCHES[world][rank]:
            weights.start(len(rows))
            yield data[rows]

    with weights.join():
        said = train(run, model, batches(), lambda _: False)
    return result(model.module, said)


def worker(rank: int, world: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world
    )
    found = {name: train_shared(run, rank, world) for name, run in RUNS.items()}
    found["joined"] = joined_shared(rank, world)
    found["errors"] = _errors(rank, world)
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def _errors(rank: int, world: int) -> dict:
    said, says = refusals()

    run = Run(norm=True)
    model = DistributedDataParallel(build(run))
    synchronised(model.module)
    sampler = heterog.UnevenBatchSampler(LENGTH[world], SHARES[world], rank)
    weights = heterog.weighted_gradients(model, sampler)
    with says("stand-in"):
        weights.start_batch(BATCHES - 1)
    weights.start_batch(0)
    x = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    with says("twice through"):
        model(x)
    with says("strange output"):
        inner = model.module.forward
        model.module.forward = lambda x: {inner(x)}
        model(x.detach())
    with says("backward within"):
        model.module.forward = lambda x: inner(x).sum().backward()
        model(x.detach())
    return said
