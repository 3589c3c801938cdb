"""Models of fully_shard (FSDP2) on unequal shares, for test_sharded.py: trained by ranks, and by one
process on the whole batches."""

import contextlib
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from unittest import mock

import torch
import torch.distributed as dist
from auto_cases import Clock
from cpu_sync_batch_norm import synchronised
from micro_cases import build, dataset, length, mean, tokens, total
from ranks_of_tests import refusals
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

import heterog
from heterog.uneven import measured_shares, step_times
from heterog.uneven.fair_shares import StepTime
from heterog.uneven.gradient_weights import GradientWeights
from heterog.uneven.shares_found import Found

PARTS = 4  # passes of a rank whose gradients are accumulated
MICRO = 2  # samples of a pass of the even script
SHARES = {2: [3, 1], 3: [4, 1, 1]}  # of a pass
WITH_NORM = {2: [6, 2], 3: [7, 3, 2]}  # of passes of twice as many: batch normalisation needs 2
ALL_SHARES = {2: [13, 3], 3: [17, 5, 2]}  # of PARTS of them: the last rank has stand-ins
EPOCHS = 3
WHOLE = StateDictOptions(full_state_dict=True)


@dataclass
class Run:
    loss: Callable = mean
    adamw: bool = False
    clip: float | None = None
    told: bool = False  # auto_shares is told of the accumulation
    untold: int = 1  # passes that the loop accumulates, without that
    late: bool = False  # gradients are summed after the last pass alone
    twice: bool = False  # two passes a batch, of which one has half the weight
    hybrid: bool = False  # replicated over the ranks, sharded within one
    flat: bool = False  # parameters stay whole after forward
    norm: bool = False  # SyncBatchNorm, and no rest
    policy: MixedPrecisionPolicy | None = None
    resumed: bool = False  # a new model from a whole checkpoint, after the first epoch
    planned: bool = False  # shares of a file, in place of measured ones
    weighed: bool = True


RUNS = {
    "mean": Run(),
    "tokens": Run(tokens),
    "sum": Run(total),
    "adamw, clipped": Run(tokens, adamw=True, clip=0.05),
    "accumulated": Run(tokens, told=True),
    "accumulated, summed late": Run(tokens, told=True, late=True),
    "accumulated, adamw, clipped": Run(tokens, adamw=True, clip=0.05, told=True),
    "accumulated sum": Run(total, told=True),
    "accumulated by the loop": Run(adamw=True, clip=0.05, untold=2),
    "accumulated by the loop, summed late": Run(tokens, untold=2, late=True),
    "synchronised norm": Run(norm=True),
    "two passes": Run(tokens, twice=True),
    "resumed": Run(tokens, adamw=True, clip=0.05, resumed=True),
    "hybrid": Run(tokens, adamw=True, clip=0.05, hybrid=True),
    "flat": Run(tokens, flat=True),
    "single precision": Run(tokens, policy=MixedPrecisionPolicy(param_dtype=torch.float32)),
    "planned": Run(tokens, adamw=True, clip=0.05, planned=True),
    "planned, accumulated": Run(tokens, adamw=True, told=True, late=True, flat=True, planned=True),
    "summed in single precision": Run(tokens, policy=MixedPrecisionPolicy(reduce_dtype=torch.float32)),
}
UNWEIGHED = {"unweighed": Run(tokens, weighed=False), "unweighed, accumulated": Run(tokens, told=True, weighed=False)}


def built(run: Run) -> nn.Module:
    model = build()
    if run.norm:
        norm = nn.BatchNorm1d(9).double()
        model = nn.Sequential(model[0], nn.Flatten(0, 1), norm, *model[1:])
    return model


def shard(model: nn.Module, run: Run, world: int) -> nn.Module:
    names = ("replicas", "shards")
    mesh = init_device_mesh("cpu", (world, 1), mesh_dim_names=names)
    mesh = mesh if run.hybrid else init_device_mesh("cpu", (world,))
    options = {"mesh": mesh, "reshard_after_forward": not run.flat}
    if run.policy:
        options["mp_policy"] = run.policy
    fully_shard(model[0], **options)
    fully_shard(model, **options)
    synchronised(model)
    return model


@contextlib.contextmanager
def planned(run: Run, world: int):
    """Options that name a file as heterog hand-over --to fsdp2 writes it."""
    fields = {"format": "heterog-shares", "version": 1, "samples_per_rank": SHARES[world]}
    if run.told:
        fields["micro_batches"] = PARTS
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(fields, file)
        file.flush()
        with mock.patch.object(measured_shares, "_measured", side_effect=AssertionError("it measured")):
            yield {"shares": file.name}


@contextlib.contextmanager
def fixed(shares: list[int], passes: int | None):
    """In place of what is measured."""
    kept = measured_shares._measured
    world = len(shares)

    def found(*_):
        even = [sum(shares) // world] * world
        times = [StepTime(0.0, 1.0, passes=passes)] * world
        return Found(shares, even, ["cpu"] * world, times, 1.0, 1.0, 1.0, 0, 0.0, together=True)

    measured_shares._measured = found
    try:
        yield
    finally:
        measured_shares._measured = kept


def left_out(really: bool):
    """The weights that hooks on gradients give."""
    if not really:
        return contextlib.nullcontext()
    return mock.patch.object(GradientWeights, "_weighed", lambda _weights, gradient: gradient)


def optimizer_of(run: Run, parameters):
    if run.adamw:
        return torch.optim.AdamW(parameters, lr=0.05, weight_decay=0.1)
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def train(run: Run, model, steps, optimizer=None) -> None:
    """`steps`: batches, by what the loss of each is divided, and whether it is an update's last."""
    optimizer = optimizer or optimizer_of(run, list(model.parameters()))
    for batch, parts, last in steps:
        if run.late and not isinstance(model, nn.Sequential):
            model.set_requires_gradient_sync(last)
            if run.flat:
                model.set_reshard_after_backward(last)
        (run.loss(model, batch) / parts).backward()
        if run.twice:
            (run.loss(model, batch) / 2).backward()
        if last:
            if run.clip:
                nn.utils.clip_grad_norm_(model.parameters(), run.clip)
            optimizer.step()
            optimizer.zero_grad()


def train_alone(name: str, world: int) -> list[torch.Tensor]:
    """Whole batches, by PyTorch alone. Gradients of passes that the script's loop accumulates are
    those of their losses; what auto_shares is told of has one loss over all of it."""
    run, data = RUNS[name], dataset(world)
    model = built(run)
    size = sum(shares_of(run, world))
    rows = []
    for epoch in range(EPOCHS):
        order = torch.randperm(length(world), generator=torch.Generator().manual_seed(4 + epoch))
        rows += [part for part in order.split(size) if len(part) == size or not run.norm]
    parts = 1 if run.told and run.loss is not total else PARTS if run.told else run.untold
    steps = (
        (data[part], parts, (number + 1) % run.untold == 0) for number, part in enumerate(rows)
    )
    train(run, model, steps)
    return [p.detach().clone() for p in model.parameters()]


def shares_of(run: Run, world: int) -> list[int]:
    if run.planned:
        return [samples * (PARTS if run.told else 1) for samples in SHARES[world]]
    return (ALL_SHARES if run.told else WITH_NORM if run.norm else SHARES)[world]


def loader_of(world: int, rank: int, run: Run) -> DataLoader:
    data = dataset(world)
    sampler = DistributedSampler(data, world, rank, seed=4)
    return DataLoader(data, 2 * MICRO if run.norm else MICRO, sampler=sampler, drop_last=run.norm)


def trained(run: Run, rank: int, world: int) -> dict:
    said, seen, kept = [], [], None
    for epochs in [range(1), range(1, EPOCHS)] if run.resumed else [range(EPOCHS)]:
        model = shard(built(run), run, world)
        optimizer = optimizer_of(run, list(model.parameters()))
        if kept:
            whole_model, whole_optimizer = kept
            set_state_dict(
                model, optimizer, model_state_dict=whole_model, optim_state_dict=whole_optimizer, options=WHOLE
            )
        trained_for(run, rank, world, model, optimizer, epochs, said, seen)
        kept = get_state_dict(model, optimizer, options=WHOLE) if run.resumed else None
    assert all(isinstance(p, DTensor) for p in model.parameters())
    parameters = [p.full_tensor().detach().clone() for p in model.parameters()]
    return {"parameters": parameters, "seen": seen, "said": said}


def trained_for(run: Run, rank: int, world: int, model, optimizer, epochs, said: list, seen: list) -> None:
    options = {"accumulate": PARTS} if run.told else {}
    shares = shares_of(run, world)
    from_file = planned(run, world) if run.planned else fixed(shares, PARTS if run.told else None)
    with from_file as named, left_out(not run.weighed):
        options |= named or {}
        loader = heterog.auto_shares(
            model, loader_of(world, rank, run), lambda b: run.loss(model, b), say=said.append, **options
        )
    assert loader.samples_per_rank == shares and loader.balance is None

    def steps():
        passes = 0
        for epoch in epochs:
            loader.set_epoch(epoch)
            for batch in loader:
                passes += 1
                seen.append(len(batch[0]))
                parts = PARTS if run.told else run.untold
                yield batch, parts, loader.last and passes % run.untold == 0

    train(run, model, steps(), optimizer)


class Slow(nn.Linear):
    """Its passes put a clock on by its samples, and then wait for the other ranks."""

    clock: Clock

    def forward(self, x):
        self.clock.step(len(x), False)
        of_all = torch.zeros(dist.get_world_size(), dtype=torch.float64)
        dist.all_gather_into_tensor(of_all, torch.tensor([self.clock.now], dtype=torch.float64))
        self.clock.now = of_all.max().item()
        return super().forward(x)


def measured(rank: int, world: int, accumulate: int, path: str) -> dict:
    """By clocks that are made up; the ranks take 1, 3 and 2 s a sample. Without accumulation, of
    steps that update parameters."""
    clock = Clock(rank)
    clock.fixed, clock.per_sample = 0.5, [1.0, 3.0, 2.0][rank]
    step_times.clock = lambda: clock.now
    model = build()
    model[0].__class__, model[0].clock = Slow, clock
    data = dataset(world)
    model = shard(model, Run(), world)
    said: list[str] = []
    before = [p.to_local().clone() for p in model.parameters()]
    random = torch.get_rng_state()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

    def step(batch):
        loss = mean(model, batch)
        if accumulate > 1:
            return loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return None

    results = {}
    for turn in ("first", "kept"):
        loader = DataLoader(data, 8, sampler=DistributedSampler(data, world, rank))
        loader = heterog.auto_shares(
            model, loader, step, accumulate=accumulate, shares=path, say=said.append, rounds=2
        )
        results[turn] = loader.found
    same = not optimizer.state and all(
        torch.equal(a, p.to_local()) for a, p in zip(before, model.parameters(), strict=True)
    )
    left = [p.grad is None for p in model.parameters()]
    return results | {
        "said": said, "put back": same and all(left) and torch.equal(random, torch.get_rng_state())
    }  # fmt: skip


def refused(rank: int, world: int) -> dict:
    said, says = refusals()

    def shared(model, **options):
        return heterog.auto_shares(
            model, loader_of(world, rank, Run()), lambda b: mean(model, b), say=None, **options
        )

    with says("parts of it"):
        model = build()
        fully_shard(model[0])
        shared(model)
    with says("left out"):
        model = build()
        fully_shard(model, ignored_params={model[2].weight})
        shared(model)
    with says("of some ranks"):
        mesh = init_device_mesh("cpu", (world, 1), mesh_dim_names=("pipeline", "data"))
        shared(fully_shard(build(), mesh=mesh["data"]))
    with says("of two kinds"):
        heterog.auto_shares(
            [shard(build(), Run(), world), DistributedDataParallel(build())],
            loader_of(world, rank, Run()), lambda b: None, say=None,
        )  # fmt: skip
    with says("first"):
        shared(FullyShardedDataParallel(build(), device_id=torch.device("cpu"), use_orig_params=True))
    with says("plain"):
        shared(build())
    with says("norm"):
        run = Run(norm=True)
        shared(shard(built(run), run, world), accumulate=PARTS)
    with says("join"):
        heterog.weighted_gradients(shard(build(), Run(), world)).join()
    return said


def worker(rank: int, world: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world
    )
    results = {name: trained(run, rank, world) for name, run in (RUNS | UNWEIGHED).items()}
    for accumulate in (1, 3):
        path = f"{folder}/kept{accumulate}.json"
        results[f"measured {accumulate}"] = measured(rank, world, accumulate, path)
    results["refused"] = refused(rank, world)
    torch.save(results, f"{folder}/{rank}.pt")
    dist.destroy_process_group()
