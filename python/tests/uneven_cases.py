"""Training runs that test_uneven.py makes twice: by several processes with unequal shares of every
batch, and by one process on the whole batches."""

from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from ranks_of_tests import refusals
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import heterog

SHARES = {2: [5, 2], 3: [5, 2, 1]}
# Of 4 whole batches and a rest, of which the last rank gets nothing.
LENGTH = {2: 29, 3: 34}
EPOCHS = 3
IGNORED = -100


def smooth() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 17), nn.Tanh(), nn.Linear(17, 9), nn.Tanh(), nn.Linear(9, 4))


class TwoTypes(nn.Module):
    """Parameters of two dtypes: DistributedDataParallel keeps them in buckets apart."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.wide = nn.Linear(6, 8, dtype=torch.float64)
        self.narrow = nn.Linear(8, 4, dtype=torch.float32)

    def forward(self, x):
        return self.narrow(self.wide(x).tanh().float()).double()


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.3, momentum=0.9)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=0.05, weight_decay=0.1)


@dataclass
class Run:
    """One training run. `tokens`: labels per sample, many of them ignored, in a mean over the rest.
    `weighted`: False leaves DistributedDataParallel to its plain mean."""

    model: object = smooth
    optimizer: object = sgd
    shuffle: bool = True
    drop_last: bool = False
    tokens: bool = False
    weighted: bool = True
    accumulate: bool = False
    tolerance: float = 1e-12  # relative to the norm of a parameter
    ddp: dict = field(default_factory=dict)


RUNS = {
    "sgd": Run(),
    "adamw": Run(optimizer=adamw),
    "in order": Run(shuffle=False),
    "drop last": Run(drop_last=True),
    "small buckets": Run(ddp={"bucket_cap_mb": 0.0005}),
    "views": Run(ddp={"gradient_as_bucket_view": True, "bucket_cap_mb": 0.0005}),
    "static graph": Run(ddp={"static_graph": True}),
    # What float32 touches is as exact as float32.
    "two dtypes": Run(model=TwoTypes, tolerance=1e-6, ddp={"gradient_as_bucket_view": True}),
    "tokens": Run(tokens=True),
    "tokens, adamw": Run(tokens=True, optimizer=adamw),
    "accumulated": Run(accumulate=True),
    "plain mean": Run(weighted=False),
    "plain mean, adamw": Run(weighted=False, optimizer=adamw),
}


def dataset(run: Run, length: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(9)
    x = torch.randn(length, 6, generator=generator, dtype=torch.float64)
    if not run.tokens:
        return TensorDataset(x, torch.randint(0, 4, (length,), generator=generator))
    x = torch.randn(length, 5, 6, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 4, (length, 5), generator=generator)
    # Sentences of 0 to 5 tokens: some ranks have batches with none.
    labels[torch.rand(length, 5, generator=generator) < 0.5] = IGNORED
    labels[::2] = IGNORED
    return TensorDataset(x, labels)


def loss_of(model, x, y):
    return F.cross_entropy(model(x).flatten(0, -2), y.flatten(), ignore_index=IGNORED)


def train_alone(run: Run, world: int) -> dict:
    """One process, the global batches in the same order, by PyTorch alone."""
    batch, length = sum(SHARES[world]), LENGTH[world]
    data = dataset(run, length)
    model = run.model().double() if run.model is smooth else run.model()
    optimizer = run.optimizer(model.parameters())
    losses = []
    for epoch in range(EPOCHS):
        order = list(range(length))
        if run.shuffle:
            order = torch.randperm(length, generator=torch.Generator().manual_seed(4 + epoch))
        for start in range(0, length, batch):
            rows = order[start : start + batch]
            if run.drop_last and len(rows) < batch:
                continue
            optimizer.zero_grad()
            loss = loss_of(model, *data[rows])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return {"losses": losses, "parameters": dict(model.named_parameters())}


def train_shared(run: Run, rank: int, world: int) -> dict:
    data = dataset(run, LENGTH[world])
    sampler = heterog.UnevenBatchSampler(
        data, SHARES[world], rank, shuffle=run.shuffle, seed=4, drop_last=run.drop_last
    )
    loader = DataLoader(data, batch_sampler=sampler)
    model = DistributedDataParallel(
        run.model().double() if run.model is smooth else run.model(), **run.ddp
    )
    weights = None
    if run.weighted:
        weights = heterog.weighted_gradients(model, None if run.tokens else sampler)
    optimizer = run.optimizer(model.parameters())
    losses = []
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        if weights is None or run.tokens:
            batches = enumerate(loader)
        else:
            batches = enumerate(weights.batches(loader))
        for number, (x, y) in batches:
            optimizer.zero_grad()
            if run.tokens:
                counted = sampler.sizes(number)[rank] > 0
                weights.start((y != IGNORED).sum() if counted else 0)
            if run.accumulate and len(x) > 1:
                # Two parts of this rank's batch, unequal, in two passes.
                with model.no_sync():
                    (loss_of(model, x[:1], y[:1]) / len(x)).backward()
                part = (len(x) - 1) / len(x)
                (loss_of(model, x[1:], y[1:]) * part).backward()
                loss = None
            else:
                loss = loss_of(model, x, y)
                loss.backward()
            optimizer.step()
            if weights is not None and not run.accumulate:
                losses.append(weights.loss(loss).item())
    return {"losses": losses, "parameters": dict(model.module.named_parameters())}


def worker(rank: int, world: int, folder: str) -> None:
    """Every run, one after the other, in one process of `world`; leaves what it found in a file."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world
    )
    found = {}
    for name, run in RUNS.items():
        found[name] = train_shared(run, rank, world)
    found["errors"] = _errors(rank, world)
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def _errors(rank: int, world: int) -> dict:
    """What is said when the weights are used wrongly, on this rank."""
    said, says = refusals()

    model = DistributedDataParallel(smooth().double())
    others = SHARES[5 - world]
    with says("other world"):
        heterog.weighted_gradients(model, heterog.UnevenBatchSampler(30, others, 0))
    with says("other rank"):
        sampler = heterog.UnevenBatchSampler(30, SHARES[world], (rank + 1) % world)
        heterog.weighted_gradients(model, sampler)
    with says("not wrapped"):
        heterog.weighted_gradients(model.module)
    weights = heterog.weighted_gradients(model)
    x = torch.randn(2, 6, dtype=torch.float64)
    with says("not started"):
        model(x).mean().backward()
    model = DistributedDataParallel(smooth().double())
    weights = heterog.weighted_gradients(model)
    with says("no sampler"):
        next(weights.batches([x]))
    weights.start(2)
    with says("started twice"):
        weights.start(2)
    model(x).mean().backward()
    return said
