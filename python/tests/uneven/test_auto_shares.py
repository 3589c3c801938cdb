"""auto_shares: the solver against all splits, and ranks with made-up clocks."""

import itertools
import math
import random
import re

import auto_cases as cases
import numpy
import pytest
import torch
from ranks_of_tests import found_by
from rounds import thorough
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import heterog
from heterog.base.untouched import untouched
from heterog.uneven.fair_shares import StepTime, fair_shares, fit_line, slowest
from heterog.uneven.loader import LikeSampler
from heterog.uneven.shares_found import candidates
from heterog.uneven.step_times import typical
from heterog.uneven.trial_steps import samples_within

shared = found_by(cases.worker)


def all_splits(ranks: int, batch: int, least: int = 1):
    if ranks == 1:
        yield from [(batch,)] if batch >= least else []
        return
    for first in range(least, batch + 1):
        for rest in all_splits(ranks - 1, batch - first, least):
            yield (first, *rest)


def made_up_times(draw: random.Random, ranks: int) -> list[StepTime]:
    return [
        StepTime(draw.choice([0, draw.random() * 9]), draw.choice([1.0, 2.0, 0.1 + draw.random()]),
                 draw.choice([None, None, draw.randint(1, 9)]))
        for _ in range(ranks)
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(200))
def test_no_split_is_faster(seed):
    draw = random.Random(seed)
    ranks = draw.randint(1, 4)
    least = draw.choice([1, 1, 2])
    batch = draw.randint(ranks * least, 14)
    times = made_up_times(draw, ranks)
    fitting = [
        slowest(times, split)
        for split in all_splits(ranks, batch, least)
        if all(t.most is None or n <= t.most for t, n in zip(times, split, strict=True))
    ]
    if not fitting:
        with pytest.raises(ValueError, match="memory"):
            fair_shares(times, batch, least)
        return
    shares = fair_shares(times, batch, least)
    assert sum(shares) == batch and min(shares) >= least
    assert all(t.most is None or n <= t.most for t, n in zip(times, shares, strict=True))
    assert slowest(times, shares) == min(fitting)


def test_shares_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="2 samples for 3 ranks"):
        fair_shares([StepTime(0, 1)] * 3, 2)
    with pytest.raises(ValueError, match="rank 1: fewer than 1 samples"):
        fair_shares([StepTime(0, 1), StepTime(0, 1, 0)], 5)


def test_lines_through_times():
    assert fit_line({2: 7.0, 4: 11.0, 9: 21.0}) == pytest.approx((3.0, 2.0))
    assert fit_line({4: 8.0}) == (0.0, 2.0)
    # Neither part is negative: a line through nothing instead.
    assert fit_line({1: 1.0, 2: 3.0})[0] == 0.0
    fixed, slope = fit_line({1: 3.0, 2: 2.0, 3: 1.0})
    assert fixed == 0.0 and slope > 0
    # Relative errors: 10 % at 1 sample weighs as 10 % at 100.
    fixed, slope = fit_line({1: 1.1, 100: 100.0, 200: 200.0})
    assert abs(fixed + slope - 1.1) < 0.01


def test_a_quarter_of_quiet_steps_is_enough():
    assert typical([9, 9, 1, 9, 1, 9, 9, 1]) == 1
    assert typical([2.0]) == 2.0


def test_samples_that_fit():
    # 100 bytes whatever happens, 10 a sample.
    assert samples_within({1: 110, 4: 140, 8: 180}, 255) == 15
    assert samples_within({1: 110, 4: 140, 8: 180}, 50) == 0


def test_ranks_and_machines_may_be_left_out():
    assert candidates(["a", "b", "a", "c"]) == [(0,), (1,), (2,), (3,), (0, 2)]
    assert candidates(["a", "a"]) == [(0,), (1,)]


def same(a, b) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.equal(a, b)
    if isinstance(a, numpy.ndarray):
        return numpy.array_equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(itertools.starmap(same, zip(a, b, strict=True)))
    return a == b


def test_steps_leave_no_trace():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 2))
    optimizers = [torch.optim.Adam(model.parameters()), torch.optim.SGD(model.parameters(), 0.1, 0.9)]
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizers[0], 1, 0.5)

    def step(which):
        loss = model(torch.randn(5, 3)).square().sum() * random.random() * numpy.random.rand()
        scaler.scale(loss).backward()
        scaler.step(which)
        scaler.update()
        scheduler.step()

    def state():
        return [
            {name: value.clone() for name, value in model.state_dict().items()},
            [None if p.grad is None else p.grad.clone() for p in model.parameters()],
            [
                [{k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in s.items()}
                 for s in optimizer.state_dict()["state"].values()]
                for optimizer in optimizers
            ],
            [optimizer.param_groups[0]["lr"] for optimizer in optimizers],
            scaler.state_dict(), scheduler.state_dict()["last_epoch"],
            torch.get_rng_state(), random.getstate(), numpy.random.get_state(),
        ]  # fmt: skip

    step(optimizers[0])  # one has a state, the other none
    tensors = [*model.parameters(), *model.buffers(), model[0].weight.grad]
    before = state()
    with untouched(model, [scaler, scheduler]):
        for optimizer in optimizers * 2:
            step(optimizer)
        model[1].running_mean = model[1].running_mean + 1  # a buffer that becomes another tensor
        model[0].weight.grad = None
        assert not any(map(same, before[:2], state()[:2]))
    assert same(before, state())
    after = [*model.parameters(), *model.buffers(), model[0].weight.grad]
    assert all(a is b for a, b in zip(tensors, after, strict=True))
    with pytest.raises(RuntimeError), untouched(model, [scaler, scheduler]):
        step(optimizers[1])
        raise RuntimeError
    assert same(before, state())


@pytest.mark.parametrize("shuffle", [False, True])
def test_global_batches_are_those_of_the_even_script(shuffle):
    data = TensorDataset(torch.arange(24))
    even = [DistributedSampler(data, 3, rank, shuffle=shuffle, seed=5) for rank in range(3)]
    loaders = [DataLoader(data, batch_size=4, sampler=sampler) for sampler in even]
    uneven = [LikeSampler(loader, 12, 3, rank) for rank, loader in enumerate(loaders)]
    for sampler in uneven:
        sampler.change_shares([7, 4, 1])
    seen = []
    for epoch in (0, 1):
        for sampler in even:
            sampler.set_epoch(epoch)
        expected = [torch.cat(sum(parts, [])) for parts in zip(*loaders, strict=True)]
        found = [sum(parts, []) for parts in zip(*uneven, strict=True)]
        assert [sorted(batch) for batch in found] == [sorted(b.tolist()) for b in expected]
        seen.append(found)
    assert (seen[0] != seen[1]) == shuffle


class Doubled:
    """What wraps a loader, as Fabric and timm do."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        return (2 * x for (x,) in self.loader)


def test_one_process_has_nothing_to_measure():
    loader = DataLoader(TensorDataset(torch.arange(10)), batch_size=4, shuffle=True)
    uneven = heterog.auto_shares(nn.Linear(1, 1), Doubled(loader), None)
    epochs = [torch.cat(list(uneven)).tolist() for _ in range(3)]
    assert epochs[0] != epochs[1] != epochs[2]
    assert all(sorted(epoch) == list(range(0, 20, 2)) for epoch in epochs)
    uneven.set_epoch(1)
    assert torch.cat(list(uneven)).tolist() == epochs[1]
    assert uneven.samples_per_rank == [4] and len(uneven) == 3


WORLDS = thorough([2, 3], but={3})


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", ["loss", "whole", "begun", "static", "views", "synchronised"])
def test_shares_follow_from_the_clocks_and_nothing_is_changed(shared, world, name):
    times = [StepTime(f, s) for f, s in zip(cases.FIXED, cases.PER_SAMPLE, strict=True)][:world]
    batch = cases.PER_RANK * world
    # Two at least: the model has batch normalisation.
    expected = min(slowest(times, split) for split in all_splits(world, batch, 2))
    for rank in range(world):
        found = shared(world)[rank][name]
        assert found["shares"] == shared(world)[0][name]["shares"]
        assert sum(found["shares"]) == batch
        assert slowest(times, found["shares"]) == pytest.approx(expected)
        for time, known in zip(found["times"], times, strict=True):
            assert (time.fixed, time.per_sample) == pytest.approx((known.fixed, known.per_sample))
        assert found["even_seconds"] == pytest.approx(slowest(times, [cases.PER_RANK] * world))
        assert found["seconds"] == pytest.approx(expected)
        assert found["predicted"] == pytest.approx(expected)
        rounds = [line for line in found["said"] if "timed passes of" in line]
        won = [line for line in found["said"] if "win back" in line]
        rest = len(found["said"]) - len(rounds) - len(won)
        assert rest == (5 - (name == "synchronised") if rank == 0 else 0)
        assert (len(rounds) >= 2, len(won)) == (rank == 0, int(rank == 0))
        for line in won:
            took, step = map(float, re.search(r"took (.*) s, .* step (\d+)$", line).groups())
            assert took == pytest.approx(found["took"], abs=0.06)  # of one decimal
            assert step == math.ceil(found["took"] / (found["even_seconds"] - found["seconds"]))
            # The probe, and measuring for 30 even steps. How long the others keep rank 0 waiting, which
            # fills the time with passes that count for nothing, is this machine's speed.
            assert 0 < found["took"] - found["until_others"] < 36 * found["even_seconds"]
        assert same(found["before"], found["after"])


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", ["trained", "workers", "drifted", "drifted, workers"])
def test_what_follows_is_the_training_of_one_process(shared, world, name):
    expected = cases.trained_alone(world)
    for rank in range(world):
        found = shared(world)[rank][name]["state"]
        for parameter, value in expected.items():
            assert (found[parameter] - value).norm() <= 1e-12 * value.norm()


@pytest.mark.parametrize("world", WORLDS)
def test_shares_stay_where_clocks_do(shared, world):
    for rank in range(world):
        found = shared(world)[rank]["trained"]
        assert found["at_last"] == found["shares"]
        batches = -(-cases.LENGTH // (cases.PER_RANK * world))
        whole = cases.LENGTH // (cases.PER_RANK * world)
        for epoch in range(6):
            seen = found["seen"][epoch * batches : (epoch + 1) * batches]
            assert seen[:whole] == [found["shares"][rank]] * whole


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", ["drifted", "drifted, workers"])
def test_samples_move_from_a_rank_that_becomes_slower(shared, world, name):
    times = [StepTime(f, s) for f, s in zip(cases.FIXED, cases.PER_SAMPLE, strict=True)][:world]
    times[0] = times[0].slowed(4.0)
    best = min(slowest(times, split) for split in all_splits(world, cases.PER_RANK * world))
    for rank in range(world):
        found = shared(world)[rank][name]
        assert slowest(times, found["at_last"]) == pytest.approx(best)
        assert found["at_last"][0] < found["shares"][0]
        assert ("in place of" in "".join(found["all_said"])) == (rank == 0)


def test_a_rank_that_is_too_slow_to_help_is_named(shared):
    for rank in range(3):
        found = shared(3)[rank]["slow rank"]
        # Of 24 samples, one on the slow rank takes 30 s, and 6 are waited for; 12 and 12 on the
        # others take 12 s, and of the 6 s 4 are saved: 36 / 14. Computing gains 18 s, the link 4.
        assert found["shares"][2] == 1
        assert list(found["leave_out"]) == [(2,)]
        assert found["leave_out"][2,].gain == pytest.approx(36 / 14)
    # As docs/auto_shares.md shows it.
    assert shared(3)[0]["slow rank"]["said"][-1] == (
        "heterog: leave rank 2 out: it is too slow to help: the step computes for 30000.0 ms with it, for 12000.0 ms "
        "if the others take all samples (predicted 2.57 × as fast without)"
    )
    assert shared(3)[0]["whole"]["leave_out"] == {}


def test_a_rank_whose_link_costs_more_is_named(shared):
    # 8 s are computed on each of three equal ranks, 12 on each of two; 60 are waited for, of an
    # all-reduce of 50 with the last one's link and 1 without: 68 / (12 + 60 - 49).
    found = shared(3)[0]["slow link"]
    assert found["leave_out"][2,].gain == pytest.approx(68 / 23)
    # As docs/auto_shares.md shows it.
    assert found["said"][-1] == (
        "heterog: leave rank 2 out: its link costs more than it gives: an all-reduce takes 50000.0 ms with it, "
        "1000.0 ms without (predicted 2.96 × as fast without)"
    )


@pytest.mark.parametrize("world", WORLDS)
def test_the_spread_is_said_where_steps_are_not_as_predicted(shared, world):
    found = shared(world)[0]["not as predicted"]
    assert found["spread"] == pytest.approx((found["seconds"], found["seconds"]))
    assert found["predicted"] > 1.1 * found["seconds"]
    assert found["said"][-1].startswith("heterog: these figures are rough: half of the steps took")
    assert shared(world)[0]["whole"]["spread"] is None


@pytest.mark.parametrize("world", WORLDS)
def test_a_rest_of_which_a_rank_has_too_little_to_normalise_is_refused(shared, world):
    for rank in range(world):
        assert "give drop_last=True" in shared(world)[rank]["errors"]["rest"]


@pytest.mark.parametrize("world", WORLDS)
def test_memory_bounds_shares(shared, world):
    for rank in range(world):
        found = shared(world)[rank]["limited"]
        assert found["shares"][0] == 9
        assert sum(found["shares"]) == cases.PER_RANK * world


@pytest.mark.parametrize("world", WORLDS)
def test_what_cannot_be_shared_is_refused(shared, world):
    for rank in range(world):
        said = shared(world)[rank]["errors"]
        assert "ran no backward pass" in said["no loss"]
        assert "wrap the model" in said["not wrapped"]
        assert "give a torch.utils.data.DataLoader" in said["no loader"]
        assert "IterableDataset" in said["iterable"]
        assert "WeightedRandomSampler" in said["sampler"]
        assert "UnevenBatchSampler" in said["own batches"]
        assert f"{world - 1} samples for {world} ranks" in said["batch"]
        assert f"{cases.LENGTH} samples make no batch" in said["few"]
        assert f"memory for {3 * world} in all" in said["no memory"]
