"""Losses of test_loss_probe.py: each trained by three ranks at shares 5, 3, 1, and by one process on
the whole batches."""

import contextlib
import dataclasses
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import heterog
from heterog.uneven import measured_shares
from heterog.uneven.fair_shares import StepTime
from heterog.uneven.shares_found import Found

SHARES = [5, 3, 1]
EVEN = [3, 3, 3]
LENGTH = 38  # four batches of 9, and a rest of 2, of which the last rank has nothing
CLASS_WEIGHTS = torch.tensor([0.1, 1.0, 2.0, 5.0], dtype=torch.float64)
IGNORED = -100


def tokens(model, b, **options):
    return F.cross_entropy(model(b[0]).flatten(0, 1), b[1].flatten(), **options)


def shifted(model, b):
    return F.cross_entropy(model(b[0])[:, :-1].flatten(0, 1), b[1][:, 1:].flatten())


def sample_weights(model, b):
    return (b[2] * model(b[0]).square().mean((1, 2))).sum() / b[2].sum()


def masked(model, b):
    mask = b[1] != IGNORED
    return (mask[..., None] * model(b[0]).square()).sum() / mask.sum()


def contrastive(model, b):
    """Each sample against all others of the batch."""
    views = F.normalize(model(b[0]).flatten(1), dim=1)
    return F.cross_entropy(views @ views.roll(1, 1).T / 0.1, torch.arange(len(views)))


def even_labels(model, b):
    counts = (b[1] % 2 == 0).double()
    return (counts[..., None] * model(b[0]).square()).sum() / counts.sum()


def vae(model, b):
    """As in pytorch/examples: sums over the batch, with noise that here is part of it."""
    mean, spread = model(b[0]).chunk(2, -1)
    drawn = mean + torch.exp(0.5 * spread) * b[3]
    rebuilt = F.binary_cross_entropy_with_logits(drawn, torch.sigmoid(b[0][..., :2]), reduction="sum")
    return rebuilt - 0.5 * (1 + spread - mean.square() - spread.exp()).sum()


def talking(model, b):
    own = model(b[0])
    whole = own.detach().mean()
    dist.all_reduce(whole)
    return (own - whole).square().mean()


@dataclasses.dataclass
class Case:
    """`said` is in the line of the probe; `kept`: the shares stay even."""

    loss: Callable
    said: str
    kept: bool = False
    accumulate: int = 1
    whole_step: bool = False
    dropout: bool = False
    options: dict = dataclasses.field(default_factory=dict)


CASES = {
    "mean": Case(lambda m, b: m(b[0]).square().mean(), "by samples"),
    "classes": Case(lambda m, b: F.cross_entropy(m(b[0])[:, 0], b[4]), "in batch[4]"),
    "sum": Case(lambda m, b: m(b[0]).square().sum(), "adds up"),
    "sum, accumulated": Case(lambda m, b: m(b[0]).square().sum(), "adds up", accumulate=2),
    "tokens": Case(tokens, "labels that count (not -100) in batch[1] "),
    "tokens, whole step": Case(tokens, "labels that count (not -100) in batch[1] ", whole_step=True),
    "tokens, accumulated": Case(tokens, "labels that count (not -100) in batch[1] ", accumulate=2),
    "tokens, 3 accumulated": Case(tokens, "labels that count (not -100) in batch[1] ", accumulate=3),
    "tokens, dropout": Case(tokens, "labels that count (not -100) in batch[1] ", dropout=True),
    "shifted tokens": Case(shifted, "in batch[1][..., 1:]"),
    "class weights": Case(lambda m, b: tokens(m, b, weight=CLASS_WEIGHTS), "the class weights of"),
    "smoothed": Case(
        lambda m, b: tokens(m, b, weight=CLASS_WEIGHTS, label_smoothing=0.1), "the class weights of"
    ),
    "sample weights": Case(sample_weights, "the sum of batch[2]"),
    "masked": Case(masked, "what is not -100 of batch[1]"),
    "vae": Case(vae, "adds up"),
    "count": Case(even_labels, "what count= says (", options={"count": lambda b: (b[1] % 2 == 0).sum()}),
    "contrastive": Case(contrastive, "couples samples", kept=True),
    "root": Case(lambda m, b: m(b[0]).square().mean().sqrt(), "couples samples", kept=True),
    "forced": Case(contrastive, "as force=True wants", options={"force": True}),
    "unproved": Case(contrastive, "unproved", options={"count": lambda b: len(b[0])}),
}
EXACT = [n for n, c in CASES.items() if not (c.kept or c.dropout or n in ("forced", "unproved"))]


def dataset(length: int = LENGTH) -> TensorDataset:
    generator = torch.Generator().manual_seed(9)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    labels = torch.randint(0, 4, (length, 6), generator=generator)
    labels[torch.rand(length, 6, generator=generator) < 0.4] = IGNORED
    classes = torch.randint(0, 4, (length,), generator=generator)
    return TensorDataset(draw(length, 6, 6), labels, draw(length).abs(), draw(length, 6, 2), classes)


def build(dropout: bool = False) -> nn.Module:
    torch.manual_seed(1)
    drop = nn.Dropout(0.5) if dropout else nn.Identity()
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), drop, nn.Linear(9, 4)).double()


def train(case: Case, model, batches, lr: float = 0.02) -> list[float]:
    """The loop of a script, for one process and for ranks."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    for number, batch in enumerate(batches):
        last = (number + 1) % case.accumulate == 0
        wait = not last and isinstance(model, DistributedDataParallel)
        with model.no_sync() if wait else contextlib.nullcontext():
            (case.loss(model, batch) / case.accumulate).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
    return [p.detach().clone() for p in model.parameters()]


def train_alone(case: Case) -> list[torch.Tensor]:
    data = dataset()
    batches = [data[start : start + 9] for start in range(0, LENGTH, 9)]
    return train(case, build(), batches)


@contextlib.contextmanager
def fixed_shares(shares: list[int]):
    """In place of measured ones: what follows is about what they are weighed by."""
    kept = measured_shares._measured

    def found(*_):
        times = [StepTime(0.0, 1.0)] * len(shares)
        even = [sum(shares) // len(shares)] * len(shares)
        return Found(shares, even, ["cpu"] * len(shares), times, 1.0, 1.0, 1.0, 0, 0.0)

    measured_shares._measured = found
    try:
        yield
    finally:
        measured_shares._measured = kept


def trained(case: Case, rank: int, world: int, model=None, length: int = LENGTH) -> dict:
    data = dataset(length)
    ddp = DistributedDataParallel(model or build(case.dropout))
    sampler = DistributedSampler(data, world, rank, shuffle=False)
    loader = DataLoader(data, batch_size=9 // world, sampler=sampler)
    optimizer = torch.optim.Adam(ddp.parameters())

    def step(batch):
        loss = case.loss(ddp, batch)
        if case.whole_step:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss

    said: list[str] = []
    torch.manual_seed(7)
    before = [p.detach().clone() for p in ddp.parameters()], torch.get_rng_state()
    loader = heterog.auto_shares(ddp, loader, step, say=said.append, rebalance=None, **case.options)
    after = [p.detach().clone() for p in ddp.parameters()], torch.get_rng_state()
    shares = loader.samples_per_rank
    return {"said": said, "shares": shares, "before": before, "after": after,
            "found": loader.found is not None, "parameters": train(case, ddp, loader)}  # fmt: skip


def talks(rank: int, world: int) -> dict:
    """What auto_shares says of a loss with a collective, at batches that ranks share evenly or not."""
    said = {}
    for name, options in {"even": {"batch": 6}, "rest": {}, "force": {"force": True}}.items():
        ddp = DistributedDataParallel(build())
        data = dataset(36 if name == "even" else LENGTH)
        loader = DataLoader(data, 3, sampler=DistributedSampler(data, world, rank, shuffle=False))
        lines: list[str] = []
        try:
            uneven = heterog.auto_shares(
                ddp, loader, lambda b, ddp=ddp: talking(ddp, b), say=lines.append, **options
            )
            train(Case(talking, ""), ddp, uneven)
            said[name] = "".join(lines)
        except ValueError as error:
            said[name] = str(error)
    return said


def normalised(rank: int, world: int) -> dict:
    """With batch normalisation, whose statistics the probe holds still."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 9), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(9, 4)).double()
    norm, means = model[1], []

    def note(_norm, _inputs, out):
        if "forward" in norm.__dict__:  # of the probe
            means.append(out.detach().mean((0, 2)).abs().max().item())

    norm.register_forward_hook(note)
    found = trained(Case(tokens, ""), rank, world, model, length=36)
    return {"said": found["said"], "means": means, "shares": found["shares"], "momentum": model[1].momentum,
            "forward": "forward" in model[1].__dict__}  # fmt: skip


def worker(rank: int, world: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world
    )
    with fixed_shares(SHARES):
        results = {name: trained(case, rank, world) for name, case in CASES.items()}
        results["talks"] = talks(rank, world)
    with fixed_shares([4, 3, 2]):
        results["normalised"] = normalised(rank, world)
    torch.save(results, f"{folder}/{rank}.pt")
    dist.destroy_process_group()
