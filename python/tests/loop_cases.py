"""Loops that people write around a loader, for test_loops.py: each trained by ranks of unequal shares
and by one process on the whole batches."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from probe_cases import fixed_shares
from ranks_of_tests import refusals
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, Sampler, TensorDataset

import heterog

WORLD = 2
SHARES = [6, 2]
BATCH = sum(SHARES)
LENGTH = 3 * BATCH + 3  # the rest is no whole batch


def dataset() -> TensorDataset:
    generator = torch.Generator().manual_seed(9)
    x = torch.randn(LENGTH, 5, 6, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 4, (LENGTH, 5), generator=generator)
    labels[torch.rand(LENGTH, 5, generator=generator) < 0.5] = -100
    return TensorDataset(x, labels)


def build() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 4)).double()


def tokens(model, batch):
    return F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())


def summed(model, batch):
    return model(batch[0]).square().sum() / 50


@dataclass
class Loop:
    """`train(models, loader, loss)`: all epochs. `epochs` begin anew in the order of the data."""

    train: Callable
    loss: Callable = tokens
    options: dict = field(default_factory=dict)


def sgd(models):
    return torch.optim.SGD([p for m in models for p in m.parameters()], lr=0.1, momentum=0.9)


def plain(models, loader, loss):
    (model,) = models
    optimizer = sgd(models)
    for _ in range(2):
        for batch in loader:
            optimizer.zero_grad()
            loss(model, batch).backward()
            optimizer.step()


def prefetched(models, loader, loss):
    """Moves each batch before the one before it is computed: new tensors."""
    plain(models, _Prefetched(loader, 1), loss)


def prefetched_more(models, loader, loss):
    plain(models, _Prefetched(loader, 3), loss)


def normalised_ahead(models, loader, loss):
    plain(models, _Prefetched(loader, 1, lambda x: x * 2 + 1), loss)


class _Prefetched:
    def __init__(self, loader, depth, change=torch.clone):
        self.loader, self.depth, self.change = loader, depth, change

    def __iter__(self):
        held = []
        for x, labels in self.loader:
            held.append((self.change(x), labels.clone()))
            if len(held) > self.depth:
                yield held.pop(0)
        yield from held


def two_steps(models, loader, loss):
    """Sharpness-aware minimisation: two passes of a batch for an update."""
    (model,) = models
    optimizer = sgd(models)
    for _ in range(2):
        for batch in loader:
            optimizer.zero_grad()
            loss(model, batch).backward()
            with torch.no_grad():
                moves = [0.05 * p.grad for p in model.parameters()]
                for p, move in zip(model.parameters(), moves, strict=True):
                    p.add_(move)
            optimizer.zero_grad()
            loss(model, batch).backward()
            with torch.no_grad():
                for p, move in zip(model.parameters(), moves, strict=True):
                    p.sub_(move)
            optimizer.step()


def two_losses(models, loader, loss):
    """Two backward passes of a batch, each summed over the ranks, for one update."""
    (model,) = models
    optimizer = sgd(models)
    for _ in range(2):
        for batch in loader:
            optimizer.zero_grad()
            loss(model, batch).backward()
            loss(model, (batch[0] * 0.5, batch[1])).backward()
            optimizer.step()


def adversarial(models, loader, loss):
    """A GAN's turns: one model judges what the other makes of the batch."""
    judge, maker = models
    optimizers = [sgd([judge]), sgd([maker])]
    for _ in range(2):
        for x, _labels in loader:
            optimizers[0].zero_grad()
            made = maker(x)
            _judged(judge(x), 1.0).backward()
            _judged(judge(F.pad(made, (0, 2)).detach()), 0.0).backward()
            optimizers[0].step()
            optimizers[1].zero_grad()
            _judged(judge(F.pad(made, (0, 2))), 1.0).backward()
            optimizers[1].step()


def _judged(scores, wanted):
    return F.binary_cross_entropy_with_logits(scores, torch.full_like(scores, wanted))


def with_hook(models, loader, loss):
    """Gradients travel by a communication hook of the script's own."""
    if isinstance(models[0], DistributedDataParallel):
        models[0].register_comm_hook(None, allreduce_hook)
    plain(models, loader, loss)


def copied(models, loader, loss):
    """An average of the parameters, kept in a copy of the wrapped model."""
    (model,) = models
    average = copy.deepcopy(model)
    optimizer = sgd(models)
    for _ in range(2):
        for batch in loader:
            optimizer.zero_grad()
            loss(model, batch).backward()
            optimizer.step()
            with torch.no_grad():
                average(batch[0])
                for mine, other in zip(average.parameters(), model.parameters(), strict=True):
                    mine.lerp_(other, 0.3)
    with torch.no_grad():
        for mine, other in zip(average.parameters(), model.parameters(), strict=True):
            other.copy_(mine)


def resumed(models, loader, loss):
    """The second half of an epoch, then a whole one, as Accelerate's skip_first_batches makes it."""
    (model,) = models
    optimizer = sgd(models)
    skipped = DataLoader(
        loader.dataset, batch_sampler=Skipped(loader.batch_sampler), collate_fn=loader.collate_fn
    )
    for part in (skipped, loader):
        for batch in part:
            optimizer.zero_grad()
            loss(model, batch).backward()
            optimizer.step()


class Skipped(Sampler):
    def __init__(self, inner):
        self.inner = inner

    def __iter__(self):
        for number, rows in enumerate(self.inner):
            if number >= 2:
                yield rows


LOOPS = {
    "plain": Loop(plain),
    "sum": Loop(plain, summed),
    "prefetched": Loop(prefetched),
    "prefetched more": Loop(prefetched_more),
    "two steps": Loop(two_steps),
    "two losses": Loop(two_losses),
    "two losses, sum": Loop(two_losses, summed),
    "adversarial": Loop(adversarial),
    "hook": Loop(with_hook),
    "copied": Loop(copied),
    "resumed": Loop(resumed),
    "compiled": Loop(prefetched, options={"compiled": True}),
    "a batch sampler": Loop(plain, options={"as_batches": True}),
    "called twice": Loop(plain, options={"twice": True}),
    "two loaders": Loop(plain, options={"beside": True}),
}


def models_of(name: str) -> list[nn.Module]:
    if name != "adversarial":
        return [build()]
    torch.manual_seed(2)
    return [build(), nn.Linear(6, 4).double()]


def train_alone(name: str) -> list[torch.Tensor]:
    models = models_of(name)
    loader = DataLoader(dataset(), batch_size=BATCH)
    LOOPS[name].train(models, loader, LOOPS[name].loss)
    return [p.detach().clone() for m in models for p in m.parameters()]


def even_loader(world: int, rank: int, as_batches: bool = False) -> DataLoader:
    sampler = DistributedSampler(dataset(), world, rank, shuffle=False)
    if as_batches:
        return DataLoader(dataset(), batch_sampler=BatchSampler(sampler, BATCH // world, False))
    return DataLoader(dataset(), batch_size=BATCH // world, sampler=sampler)


def uneven(name: str, rank: int, world: int):
    """The models, and the loader of auto_shares."""
    loop = LOOPS[name]
    models = [DistributedDataParallel(model) for model in models_of(name)]

    def step(batch):
        if name != "adversarial":
            return loop.loss(models[0], batch)
        judge, maker = models
        return _judged(judge(F.pad(maker(batch[0]), (0, 2))), 1.0)

    if "compiled" in loop.options:
        models = [torch.compile(model, backend="aot_eager") for model in models]
    given = models if len(models) > 1 else models[0]
    loader = even_loader(world, rank, "as_batches" in loop.options)
    found = heterog.auto_shares(given, loader, step, say=None, rebalance=None)
    if "twice" in loop.options:
        found = heterog.auto_shares(given, found, step, say=None, rebalance=None)
    if "beside" in loop.options:
        heterog.auto_shares(given, even_loader(world, rank), step, say=None, rebalance=None)
    return models, found


def trained(name: str, rank: int, world: int) -> dict:
    models, loader = uneven(name, rank, world)
    seen = isinstance(loader, DataLoader) and isinstance(loader.sampler, DistributedSampler)
    LOOPS[name].train(models, loader, LOOPS[name].loss)
    parameters = [p.detach().clone() for m in models for p in m.parameters()]
    return {"parameters": parameters, "shares": loader.samples_per_rank, "real": seen}


def refused(rank: int, world: int) -> dict:
    said, says = refusals()

    with says("another model"):
        models = [DistributedDataParallel(model) for model in models_of("adversarial")]
        step = lambda batch: models[0](F.pad(models[1](batch[0]), (0, 2))).mean()  # noqa: E731
        heterog.auto_shares(models[0], even_loader(world, rank), step, say=None)
    with says("old loader"):
        models, _ = uneven("plain", rank, world)
        plain(models, even_loader(world, rank), tokens)
    with says("changed ahead"):
        models, loader = uneven("prefetched", rank, world)
        normalised_ahead(models, loader, tokens)
    with says("trained copy"):
        models, loader = uneven("plain", rank, world)
        plain([copy.deepcopy(models[0])], loader, tokens)
    with says("workers"):
        models, loader = uneven("plain", rank, world)
        parts = {"batch_sampler": loader.batch_sampler, "collate_fn": loader.collate_fn}
        plain(models, DataLoader(loader.dataset, num_workers=1, **parts), tokens)
    return said


def worker(rank: int, world: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world
    )
    with fixed_shares(SHARES):
        results = {name: trained(name, rank, world) for name in LOOPS}
        results["refused"] = refused(rank, world)
    torch.save(results, f"{folder}/{rank}.pt")
    dist.destroy_process_group()
