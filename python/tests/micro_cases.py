"""Accumulated batches of which each rank has micro-batches of its own, for test_micro_batches.py:
trained by ranks, and by one process on the whole accumulated batches."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

import auto_cases
import torch
import torch.distributed as dist
from cpu_sync_batch_norm import synchronised
from loop_cases import tokens
from ranks_of_tests import refusals
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import heterog
from heterog.uneven import measured_shares, step_times
from heterog.uneven.fair_shares import StepTime
from heterog.uneven.shares_found import Found

PARTS = 4  # micro-batches of a rank of the even script
MICRO = 2  # of so many samples
SHARES = {2: [12, 4], 3: [17, 5, 2]}
SIZES = {2: [2, 4], 3: [2, 3, 2]}  # of micro-batches, by rank
BATCH = {world: PARTS * MICRO * world for world in SHARES}
REST = 2  # of which the last rank has nothing
EPOCHS = 3
DRIFTED_EPOCHS = 6
# Seconds of a core: saved up in a pause, and taken by the first of accumulated passes.
CAPPED = {"saved up": (0.008, 0.0), "gradients made": (0.0, 0.002)}


def length(world: int) -> int:
    return 3 * BATCH[world] + REST


def dataset(world: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(9)
    x = torch.randn(length(world), 5, 6, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 4, (length(world), 5), generator=generator)
    labels[torch.rand(length(world), 5, generator=generator) < 0.5] = -100
    labels[:: BATCH[world]] = -100  # a micro-batch may have no label that counts
    return TensorDataset(x, labels)


def build() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 4)).double()


def mean(model, batch):
    return model(batch[0]).square().mean()


def total(model, batch):
    return model(batch[0]).square().sum() / 50


@dataclass
class Run:
    loss: Callable = mean
    clip: float | None = None
    adamw: bool = False
    scaled: bool = False
    overflow: int | None = None  # the step in which the last rank's loss is infinite
    workers: int = 0
    moved: bool = False  # shares change in the midst of an epoch
    ddp: dict = field(default_factory=dict)


RUNS = {
    "mean": Run(),
    "tokens": Run(tokens),
    "sum": Run(total),
    "adamw, clipped": Run(tokens, adamw=True, clip=0.05),
    "scaled": Run(tokens, scaled=True, overflow=1),
    "views": Run(ddp={"gradient_as_bucket_view": True, "bucket_cap_mb": 0.0005}),
    "static graph": Run(tokens, ddp={"static_graph": True}),
    "unused": Run(ddp={"find_unused_parameters": True}),
    "workers": Run(tokens, workers=1),
    "moved": Run(tokens, moved=True),
}


def train(run: Run, model, steps, overflows=lambda _step: False) -> None:
    """`steps`: for each update, batches and whether each is its last."""
    parameters = list(model.parameters())
    if run.adamw:
        optimizer = torch.optim.AdamW(parameters, lr=0.05, weight_decay=0.1)
    else:
        optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3, enabled=run.scaled)
    updates = 0
    for batch, last in steps:
        with contextlib.nullcontext() if last or isinstance(model, nn.Sequential) else model.no_sync():
            loss = run.loss(model, batch) / PARTS
            if run.overflow is not None and overflows(updates):
                loss = loss * torch.inf
            scaler.scale(loss).backward()
        if not last:
            continue
        scaler.unscale_(optimizer)
        if run.clip:
            nn.utils.clip_grad_norm_(parameters, run.clip)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        updates += 1


def train_alone(name: str, world: int) -> list[torch.Tensor]:
    """Each accumulated batch as a whole, by PyTorch alone. A mean is divided by one number of
    micro-batches, since each is a mean; a sum is that of all of them."""
    run, model, data = RUNS[name], build(), dataset(world)
    parts = 1 if run.loss is total else PARTS
    whole = Run(lambda m, b: run.loss(m, b) * parts, **_others(run))
    orders = [torch.randperm(length(world), generator=torch.Generator().manual_seed(4 + epoch))
              for epoch in range(EPOCHS)]  # fmt: skip
    rows = [part for order in orders for part in order.split(BATCH[world])]
    train(whole, model, [(data[part], True) for part in rows], lambda step: step == run.overflow)
    return [p.detach().clone() for p in model.parameters()]


def _others(run: Run) -> dict:
    names = ("clip", "adamw", "scaled", "overflow")
    return {name: getattr(run, name) for name in names}


@contextlib.contextmanager
def fixed(world: int):
    """In place of what is measured."""
    kept = measured_shares._measured

    def found(*_):
        times = [StepTime(0.0, 1.0, None, size) for size in SIZES[world]]
        even = [PARTS * MICRO] * world
        return Found(SHARES[world], even, ["cpu"] * world, times, 1.0, 1.0, 1.0, 0, 0.0, MICRO)

    measured_shares._measured = found
    try:
        yield
    finally:
        measured_shares._measured = kept


def uneven(run: Run, rank: int, world: int, **options):
    model = DistributedDataParallel(build(), **run.ddp)
    data = dataset(world)
    sampler = DistributedSampler(data, world, rank, seed=4)
    more = {"prefetch_factor": 1, "persistent_workers": True} if run.workers else {}
    loader = DataLoader(data, MICRO, sampler=sampler, num_workers=run.workers, **more)
    options = {"accumulate": PARTS, "say": None, "rebalance": None} | options
    return model, heterog.auto_shares(model, loader, lambda b: run.loss(model, b), **options)


def trained(name: str, rank: int, world: int) -> dict:
    run = RUNS[name]
    said: list[str] = []
    model, loader = uneven(run, rank, world, say=said.append)
    seen = []

    def steps():
        for epoch in range(EPOCHS):
            loader.set_epoch(epoch)
            assert len(loader) == sum(len(loader.sampler.micro_sizes(n)) for n in range(4))
            for number, batch in enumerate(loader):
                if run.moved and epoch == 1 and number == 0:
                    turned = loader.samples_per_rank[::-1]
                    loader.sampler.change_shares(turned, loader.asked_ahead)
                seen.append(len(batch[0]))
                yield batch, loader.last

    last_rank = rank == world - 1
    train(run, model, steps(), lambda step: last_rank and step == run.overflow)
    parameters = [p.detach().clone() for p in model.parameters()]
    return {"parameters": parameters, "seen": seen, "said": said, "found": loader.found is not None}


def measured(rank: int, world: int, fixed_part: float) -> dict:
    """By clocks that are made up, of ranks that take 1, 3 and 2 s a sample."""
    script = auto_cases.Script(rank, world, without_norm=True)
    script.clock.fixed, script.clock.per_sample = fixed_part, [1.0, 3.0, 2.0][rank]
    said: list[str] = []
    data = auto_cases.dataset()
    loader = DataLoader(data, 1, sampler=DistributedSampler(data, world, rank))
    found = heterog.auto_shares(script.ddp, loader, script.loss, accumulate=8, say=said.append)
    return auto_cases.found(found, said)


class Capped(auto_cases.Script):
    """A rank with a part of a core, 0.6, 0.3 and 0.2 of one, as a control group gives it: what it has saved
    up while its clock was read is computed at full speed. A pass takes 5 ms of a core, and `made` where
    it finds no gradients to add to."""

    def __init__(self, rank: int, world: int, saved: float, made: float):
        super().__init__(rank, world, without_norm=True)
        self.part, self.saved, self.made, self.left = [0.6, 0.3, 0.2][rank], saved, made, 0.0
        step_times.clock = self.read

    def read(self) -> float:
        self.left = self.saved
        return self.clock.now

    def loss(self, batch):
        nothing = any(p.grad is None for p in self.ddp.parameters())
        work = 0.004 + 0.001 * len(batch[0]) + (self.made if nothing else 0.0)
        at_once = min(self.left, work)
        self.left -= at_once
        self.clock.now += at_once + (work - at_once) / self.part
        return nn.functional.cross_entropy(self.ddp(batch[0]), batch[1])


def capped(rank: int, world: int, saved: float, made: float) -> dict:
    script = Capped(rank, world, saved, made)
    data = auto_cases.dataset()
    loader = DataLoader(data, 1, sampler=DistributedSampler(data, world, rank))
    said: list[str] = []
    found = heterog.auto_shares(script.ddp, loader, script.loss, accumulate=8, say=said.append)
    return auto_cases.found(found, said)


def drifted(rank: int, world: int, whole_epochs: bool) -> dict:
    """Rank 0 becomes four times as slow in training; its share moves, within epochs or between them."""
    script = auto_cases.Script(rank, world, without_norm=True)
    script.clock.fixed, script.clock.per_sample = 0.0, [1.0, 3.0, 2.0][rank]
    said: list[str] = []
    data = auto_cases.dataset()
    loader = DataLoader(data, 1, sampler=DistributedSampler(data, world, rank, seed=4))
    loader = heterog.auto_shares(
        script.ddp, loader, script.loss, accumulate=8, say=said.append, check_every=5, rounds=2
    )
    before = loader.samples_per_rank
    parts = loader.accumulated if whole_epochs else 8
    script.clock.slower = 4.0 if rank == 0 else 1.0
    shares = []
    for epoch in range(DRIFTED_EPOCHS):
        loader.set_epoch(epoch)
        count = len(loader)
        shares.append(loader.samples_per_rank)
        for number, batch in enumerate(loader):
            last = (number + 1) % parts == 0 if whole_epochs else loader.last
            with contextlib.nullcontext() if last else script.ddp.no_sync():
                (script.loss(batch) / parts).backward()
            if last:
                script.optimizer.step()
                script.optimizer.zero_grad()
        assert not whole_epochs or count == number + 1
    parameters = [p.detach().clone() for p in script.ddp.parameters()]
    at_last = loader.samples_per_rank
    return {
        "before": before, "shares": shares, "at_last": at_last, "parameters": parameters, "said": said
    }  # fmt: skip


def drifted_alone(world: int) -> list[torch.Tensor]:
    model, data = auto_cases.build(), auto_cases.dataset()
    model[1] = nn.Identity()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for epoch in range(DRIFTED_EPOCHS):
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(4 + epoch))
        for rows in order.split(8 * world):
            optimizer.zero_grad()
            x, y = data[rows]
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    return [p.detach() for p in model.parameters()]


def not_told(rank: int, world: int) -> dict:
    """One sample a rank, the last rank slow, and nothing said of accumulation."""
    script = auto_cases.Script(rank, world, without_norm=True)
    script.clock.fixed, script.clock.per_sample = 0.0, 1.0 if rank < world - 1 else 30.0
    said: list[str] = []
    data = auto_cases.dataset()
    loader = DataLoader(data, 1, sampler=DistributedSampler(data, world, rank))
    return auto_cases.found(heterog.auto_shares(script.ddp, loader, script.loss, say=said.append), said)


def kept(rank: int, world: int, path: str) -> dict:
    """Measured once, and found in the file the second time; then by another training."""
    results = {}
    for name, parts in {"first": 8, "second": 8, "other": 4}.items():
        script = auto_cases.Script(rank, world, without_norm=True)
        script.clock.fixed, script.clock.per_sample = 0.5, [1.0, 3.0, 2.0][rank]
        said: list[str] = []
        steps = []

        def step(batch, script=script, steps=steps):
            steps.append(len(batch[0]))
            return script.loss(batch)

        data = auto_cases.dataset()
        loader = DataLoader(data, 1, sampler=DistributedSampler(data, world, rank))
        try:
            options = {"accumulate": parts, "shares": path, "say": said.append}
            found = heterog.auto_shares(script.ddp, loader, step, **options)
            micro = found.sampler.micro_sizes(0)
            results[name] = auto_cases.found(found, said) | {"steps": len(steps), "micro": micro}
        except heterog.InputError as error:
            results[name] = str(error)
    return results


def refused(rank: int, world: int) -> dict:
    said, says = refusals()

    with says("none"):
        uneven(Run(), rank, world, accumulate=0)
    with says("batch"):
        uneven(Run(), rank, world, batch=world)
    with says("updates"):
        model = DistributedDataParallel(build())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(batch):
            mean(model, batch).backward()
            optimizer.step()

        loader = DataLoader(dataset(world), MICRO)
        heterog.auto_shares(model, loader, step, accumulate=2, say=None)
    with says("norm"):
        model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 9), nn.BatchNorm1d(5)).double())
        synchronised(model.module)
        heterog.auto_shares(model, loader, lambda b: mean(model, b), accumulate=2, say=None)
    with fixed(world):
        with says("summed elsewhere"):
            model, loader = uneven(Run(), rank, world)
            train(Run(), model, ((b, (n + 1) % PARTS == 0) for n, b in enumerate(loader)))
        with says("parts"):
            _, loader = uneven(Run(), rank, world)
            next(iter(loader.batch_sampler))
    return said


def worker(rank: int, world: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world
    )
    with fixed(world):
        results = {name: trained(name, rank, world) for name in RUNS}
    for fixed_part in (0.0, 0.5):
        results[f"measured {fixed_part}"] = measured(rank, world, fixed_part)
    for name, (saved, made) in CAPPED.items():
        results[name] = capped(rank, world, saved, made)
    for whole in (False, True):
        results[f"drifted {whole}"] = drifted(rank, world, whole)
    results["not told"] = not_told(rank, world)
    results["kept"] = kept(rank, world, f"{folder}/kept.json")
    results["refused"] = refused(rank, world)
    torch.save(results, f"{folder}/{rank}.pt")
    dist.destroy_process_group()
