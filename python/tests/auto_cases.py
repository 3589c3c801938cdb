"""What ranks do in test_auto_shares.py. Their clocks are made up: each step puts its rank's clock on
by what a rank of that speed would take, so that nothing depends on this machine's speed."""

import random

import numpy
import torch
import torch.distributed as dist
from cpu_sync_batch_norm import synchronised
from ranks_of_tests import refusals
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import heterog
from heterog.uneven import lost_rank, measured_shares, step_times

LENGTH = 67
PER_RANK = 8  # samples of an even script
# Seconds of a step and of a sample, by rank.
FIXED = [3.0, 1.0, 2.0]
PER_SAMPLE = [1.0, 2.0, 4.0]


class Clock:
    def __init__(self, rank: int):
        self.now = 0.0
        self.fixed, self.per_sample = FIXED[rank], PER_SAMPLE[rank]
        self.slower = 1.0
        self.to_wait = 0.0  # in steps whose gradients are summed
        self.until_others = 0.0  # of `now`: in passes that keep the rank busy until the others are done
        self._until_others = False

    def look(self) -> None:
        """Called before each of those passes, of which there are as many as the machine has time for."""
        self._until_others = True

    def step(self, samples: int, waits: bool) -> None:
        seconds = self.slower * (self.fixed + self.per_sample * samples)
        seconds += self.to_wait if waits else 0.0
        self.now += seconds
        self.until_others += seconds if self._until_others else 0.0
        self._until_others = False


def build() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 9), nn.BatchNorm1d(9), nn.Tanh(), nn.Linear(9, 4)).double()


def dataset() -> TensorDataset:
    generator = torch.Generator().manual_seed(9)
    x = torch.randn(LENGTH, 6, generator=generator, dtype=torch.float64)
    return TensorDataset(x, torch.randint(0, 4, (LENGTH,), generator=generator))


class Script:
    """An even script of DistributedDataParallel, on a rank whose clock is made up."""

    def __init__(self, rank: int, world: int, shuffle: bool = True, workers: int = 0, **options):
        self.clock = Clock(rank)
        step_times.clock = lambda: self.clock.now
        step_times.look = self.look
        inner = build()
        without_norm = options.pop("without_norm", False)
        if without_norm:
            inner[1] = nn.Identity()
        with_statistics_of_all = options.pop("synchronised", False)
        self.ddp = DistributedDataParallel(inner, **options)
        if with_statistics_of_all:
            synchronised(inner)
        self.optimizer = torch.optim.Adam(self.ddp.parameters(), lr=0.05)
        self.sampler = DistributedSampler(dataset(), world, rank, shuffle=shuffle, seed=4)
        self.loader = DataLoader(
            dataset(), batch_size=PER_RANK, sampler=self.sampler, num_workers=workers,
            persistent_workers=workers > 0, drop_last=not without_norm,
        )  # fmt: skip

    def look(self) -> None:
        self.clock.look()
        lost_rank.look()

    def loss(self, batch):
        self.clock.step(len(batch[0]), self.ddp.require_backward_grad_sync)
        return F.cross_entropy(self.ddp(batch[0]), batch[1])

    def step(self, batch):
        self.optimizer.zero_grad()
        loss = self.loss(batch)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def epochs(self, loader, epochs: int) -> list[int]:
        """Trains; how many samples each batch had."""
        seen = []
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            for batch in loader:
                seen.append(len(batch[0]))
                self.step(batch)
        return seen

    def state(self) -> dict:
        """Everything that trial steps could have changed."""
        return {
            "model": {k: v.clone() for k, v in self.ddp.state_dict().items()},
            "gradients": [None if p.grad is None else p.grad.clone() for p in self.ddp.parameters()],
            "optimizer": [
                {k: v.clone() for k, v in slots.items()}
                for slots in self.optimizer.state_dict()["state"].values()
            ],
            "groups": str(self.optimizer.state_dict()["param_groups"]),
            "random": [torch.get_rng_state(), random.getstate(), numpy.random.get_state()],
        }


def found(loader, said: list) -> dict:
    return {
        "shares": loader.samples_per_rank,
        "even": loader.found.even,
        "times": loader.found.times,
        "seconds": loader.found.seconds,
        "even_seconds": loader.found.even_seconds,
        "predicted": loader.found.predicted_seconds,
        "leave_out": loader.found.leave_out,
        "spread": loader.found.spread,
        "said": said,
    }


def measured(rank: int, world: int, begun: bool, whole: bool, **options) -> dict:
    """auto_shares alone. `begun`: after some steps of the script. `whole`: of its whole step."""
    script = Script(rank, world, **options)
    if begun:
        for batch in list(script.loader)[:2]:
            with script.ddp.no_sync():
                F.cross_entropy(script.ddp(batch[0]), batch[1]).backward()
            script.optimizer.step()
    before, said, start = script.state(), [], script.clock.now
    loader = heterog.auto_shares(
        script.ddp, script.loader, script.step if whole else script.loss, say=said.append
    )
    clocked = {"took": script.clock.now - start, "until_others": script.clock.until_others}
    return found(loader, said) | clocked | {"before": before, "after": script.state()}


def trained(rank: int, world: int, workers: int = 0, drifts: bool = False) -> dict:
    """auto_shares and the training after it; with `drifts`, rank 0 becomes slower in it."""
    script = Script(rank, world, workers=workers, without_norm=True)
    said: list[str] = []
    loader = heterog.auto_shares(
        script.ddp, script.loader, script.step, say=said.append, check_every=5, rounds=2
    )
    before = found(loader, list(said))
    if drifts and rank == 0:
        script.clock.slower = 4.0
    seen = script.epochs(loader, 6)
    return before | {
        "seen": seen,
        "all_said": said,
        "state": script.state()["model"],
        "at_last": loader.samples_per_rank,
    }


def trained_alone(world: int) -> dict:
    """The same by one process, by PyTorch alone."""
    data, batch = dataset(), PER_RANK * world
    model = build()
    model[1] = nn.Identity()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for epoch in range(6):
        order = torch.randperm(LENGTH, generator=torch.Generator().manual_seed(4 + epoch))
        for start in range(0, LENGTH, batch):
            x, y = data[order[start : start + batch]]
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    return {f"module.{name}": value for name, value in model.state_dict().items()}


def left_out(rank: int, world: int, slow: float, waits: float, with_it: float) -> dict:
    """The last rank takes `slow` seconds a sample, and its link makes an all-reduce take `with_it`;
    without it, 1 s. So much is waited for in whole steps."""
    kept = measured_shares.all_reduce_seconds
    last = world - 1

    def seconds(_nbytes, _rounds, _device, group):
        return with_it if last in dist.get_process_group_ranks(group) else 1.0

    measured_shares.all_reduce_seconds = seconds
    script = Script(rank, world, without_norm=True)
    script.clock.per_sample = 1.0 if rank < last else slow
    script.clock.fixed = 0.0
    script.clock.to_wait = waits
    said: list[str] = []
    try:
        return found(heterog.auto_shares(script.ddp, script.loader, script.loss, say=said.append), said)
    finally:
        measured_shares.all_reduce_seconds = kept


def not_as_predicted(rank: int, world: int) -> dict:
    """Whole steps at even shares wait for 60 s, at others for nothing, which no line foresees."""
    script = Script(rank, world, without_norm=True)
    script.clock.per_sample = 1.0 + 5 * rank
    said: list[str] = []

    def step(batch):
        script.clock.to_wait = 60.0 if len(batch[0]) == PER_RANK else 0.0
        return script.loss(batch)

    return found(heterog.auto_shares(script.ddp, script.loader, step, say=said.append), said)


def limited(rank: int, world: int) -> dict:
    """Rank 0, the fastest, has memory for 9 samples; also in an even share that is larger."""
    script = Script(rank, world)
    loader = heterog.auto_shares(
        script.ddp, script.loader, script.loss, most=9 if rank == 0 else None, say=None
    )
    return found(loader, [])


def refused(rank: int, world: int) -> dict:
    said, says = refusals()

    def share(loader=None, step=None, model=None, **options):
        script = Script(rank, world)
        heterog.auto_shares(
            model or script.ddp,
            script.loader if loader is None else loader,
            step or script.loss,
            say=None,
            **options,
        )

    with says("no loss"):
        share(step=lambda batch: None)
    with says("not wrapped"):
        share(model=build())
    with says("no loader"):
        share(loader=[1, 2])
    with says("iterable"):
        share(loader=DataLoader(iter_dataset(), batch_size=4))
    with says("sampler"):
        weighted = torch.utils.data.WeightedRandomSampler([1.0] * LENGTH, LENGTH)
        share(loader=DataLoader(dataset(), batch_size=4, sampler=weighted))
    with says("own batches"):
        sampler = heterog.UnevenBatchSampler(LENGTH, [3] * world, rank)
        share(loader=DataLoader(dataset(), batch_sampler=sampler))
    with says("batch"):
        share(batch=world - 1)
    with says("few"):
        share(batch=LENGTH + 1)
    with says("rest"):
        script = Script(rank, world)
        data = torch.utils.data.Subset(dataset(), range(PER_RANK * world + 1))
        uneven = DataLoader(data, PER_RANK, sampler=DistributedSampler(data, world, rank))
        heterog.auto_shares(script.ddp, uneven, script.loss, say=None)
    with says("no memory"):
        share(most=3)
    return said


def iter_dataset():
    class Numbers(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(range(10))

    return Numbers()


def worker(rank: int, world: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world
    )
    results = {
        "loss": measured(rank, world, begun=False, whole=False),
        "whole": measured(rank, world, begun=False, whole=True),
        "begun": measured(rank, world, begun=True, whole=True),
        "static": measured(rank, world, begun=False, whole=True, static_graph=True),
        "views": measured(rank, world, begun=False, whole=True, gradient_as_bucket_view=True),
        "synchronised": measured(rank, world, begun=False, whole=True, synchronised=True),
        "trained": trained(rank, world),
        "workers": trained(rank, world, workers=1),
        "drifted": trained(rank, world, drifts=True),
        "drifted, workers": trained(rank, world, workers=1, drifts=True),
        "slow rank": left_out(rank, world, slow=30.0, waits=6.0, with_it=5.0),
        "slow link": left_out(rank, world, slow=1.0, waits=60.0, with_it=50.0),
        "not as predicted": not_as_predicted(rank, world),
        "limited": limited(rank, world),
        "errors": refused(rank, world),
    }
    torch.save(results, f"{folder}/{rank}.pt")
    dist.destroy_process_group()
