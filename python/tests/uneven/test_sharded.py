"""auto_shares of fully_shard models: batches of unequal sizes train as one process does."""

import pytest
import sharded_cases as cases
from ranks_of_tests import found_by
from rounds import thorough
from torch import nn

from heterog.base import data_parallel
from heterog.uneven.fair_shares import fair_shares, slowest
from heterog.uneven.share_checks import wrapped

WORLDS = thorough([2, 3], but={3})

shared = found_by(cases.worker)


def off(parameters, expected) -> float:
    pairs = zip(parameters, expected, strict=True)
    return max(((ours - theirs).norm() / theirs.norm()).item() for ours, theirs in pairs)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", list(cases.RUNS))
def test_unequal_shares_train_as_one_process(shared, name, world):
    expected = cases.train_alone(name, world)
    rounding = 1e-5 if cases.RUNS[name].policy else 1e-12
    for rank in range(world):
        assert off(shared(world)[rank][name]["parameters"], expected) <= rounding


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(("name", "weighed"), [("unweighed", "tokens"), ("unweighed, accumulated", "accumulated")])
def test_without_weights_it_is_another_training(shared, name, weighed, world):
    expected = cases.train_alone(weighed, world)
    assert off(shared(world)[0][name]["parameters"], expected) > 1e-4


@pytest.mark.parametrize("world", WORLDS)
def test_all_ranks_make_as_many_passes(shared, world):
    sizes = [[4, 3, 3, 3], [1, 1, 1, 1]] if world == 2 else [[5, 4, 4, 4], [2, 1, 1, 1], [1, 1, 1, 1]]
    seen = [shared(world)[rank]["accumulated"]["seen"] for rank in range(world)]
    assert [of_rank[:4] for of_rank in seen] == sizes
    assert len({len(of_rank) for of_rank in seen}) == 1
    words = "13 in 4 micro-batches of 3 to 4; rank 1 (cpu): 3 in 4 micro-batches of 0 to 1"
    assert world == 3 or words in shared(2)[0]["accumulated"]["said"][2]


def test_planned_shares_are_said(shared):
    said = shared(2)[0]
    assert "rank 0: 3; rank 1: 1, as planned in " in said["planned"]["said"][2]
    words = "of 16 samples a step, rank 0: 12 in 4 micro-batches of 3; rank 1: 4 in 4 micro-batches of 1, as"
    assert words in said["planned, accumulated"]["said"][2]


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("parts", [1, 3])
def test_each_rank_is_timed_in_its_turn(shared, parts, world):
    for rank in range(world):
        of_rank = shared(world)[rank][f"measured {parts}"]
        found = of_rank["first"]
        assert found.together and of_rank["put back"]
        for time, seconds in zip(found.times, [1.0, 3.0, 2.0][:world], strict=True):
            assert (time.fixed, time.per_sample) == pytest.approx((0.5, seconds), abs=1e-9)
            assert time.passes == (parts if parts > 1 else None)
        best = slowest(found.times, fair_shares(found.times, 8 * world * parts))
        assert found.samples_per_rank != found.even
        assert slowest(found.times, found.samples_per_rank) == pytest.approx(best)
        assert found.seconds == pytest.approx(found.predicted_seconds)
        kept = of_rank["kept"]
        assert (kept.times, kept.samples_per_rank) == (found.times, found.samples_per_rank)
        assert not any("all-reduce" in line for line in of_rank["said"])


def test_an_old_pytorch_is_named(monkeypatch):
    monkeypatch.setattr(data_parallel, "FSDPModule", None)
    with pytest.raises(ValueError, match=r"fully_shard on it, first \(which is known from PyTorch 2.6 on\)"):
        wrapped(nn.Linear(1, 1))


@pytest.mark.parametrize("world", WORLDS)
def test_what_is_sharded_otherwise_is_refused(shared, world):
    for rank in range(world):
        said = shared(world)[rank]["refused"]
        assert "Sequential: parts of it are sharded, it is not: call fully_shard" in said["parts of it"]
        assert "its parameter 2.weight is not sharded" in said["left out"]
        assert f"S(0) over 1 of {world} ranks" in said["of some ranks"]
        assert "some are sharded and some are not" in said["of two kinds"]
        assert "Sequential; wrap the model in DistributedDataParallel, or call fully_shard" in said["plain"]
        assert "FullyShardedDataParallel (FSDP1)" in said["first"] and "call fully_shard (FSDP2)" in said["first"]
        assert "SyncBatchNorm" in said["norm"]
        assert "give those without a batch one sample and start(0)" in said["join"]
