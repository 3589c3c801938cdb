"""Micro-batches a rank: what is accumulated trains as one process does on the whole of it."""

import math
from types import SimpleNamespace

import micro_cases as cases
import pytest
import torch
from ranks_of_tests import found_by
from rounds import thorough

from heterog.uneven.accumulated import OwnSteps
from heterog.uneven.deals import best_micro, cut, in_words
from heterog.uneven.fair_shares import StepTime, fair_shares, in_passes, slowest

WORLDS = thorough([2, 3], but={3})

shared = found_by(cases.worker)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", list(cases.RUNS))
def test_accumulated_batches_train_as_one_process(shared, name, world):
    expected = cases.train_alone(name, world)
    for rank in range(world):
        assert shared(world)[rank][name]["found"]
        for ours, theirs in zip(shared(world)[rank][name]["parameters"], expected, strict=True):
            assert (ours - theirs).norm() <= 1e-12 * theirs.norm()


@pytest.mark.parametrize("world", WORLDS)
def test_each_rank_has_its_own_number_of_micro_batches(shared, world):
    whole = [[2] * 6, [4]] if world == 2 else [[2] * 8 + [1], [3, 2], [2]]
    for rank in range(world):
        seen = shared(world)[rank]["mean"]["seen"]
        assert seen[: len(whole[rank])] == whole[rank]
    said = shared(world)[0]["mean"]["said"]
    words = "12 in 6 micro-batches of 2" if world == 2 else "17 in 9 micro-batches of 1 to 2"
    assert f"rank 0 (cpu): {words}" in said[2]


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("fixed", [0.0, 0.5])
def test_measuring_finds_the_fastest_deal(shared, world, fixed):
    per_sample = [1.0, 3.0, 2.0][:world]
    for rank in range(world):
        found = shared(world)[rank][f"measured {fixed}"]
        for time, seconds in zip(found["times"], per_sample, strict=True):
            assert (time.fixed, time.per_sample) == pytest.approx((fixed, seconds), abs=1e-9)
            # A pass of two samples costs less than two of one where a pass costs anything.
            assert (time.micro > 1) == (fixed > 0)
        best = slowest(found["times"], fair_shares(found["times"], 8 * world))
        assert slowest(found["times"], found["shares"]) == pytest.approx(best)
        assert found["even_seconds"] == pytest.approx(8 * (fixed + 3.0))
        assert found["seconds"] == pytest.approx(found["predicted"])
    if world == 2 and not fixed:
        assert found["shares"] == [12, 4]
        assert "rank 0" in "".join(shared(2)[0]["measured 0.0"]["said"])
        assert not found["leave_out"]


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", list(cases.CAPPED))
def test_steps_of_short_passes_are_predicted(shared, name, world):
    for rank in range(world):
        found = shared(world)[rank][name]
        assert found["seconds"] == pytest.approx(found["predicted"], rel=0.1)
        assert not found["spread"]


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("whole_epochs", [False, True])
def test_micro_batches_move_from_a_rank_that_becomes_slower(shared, world, whole_epochs):
    times = [StepTime(0.0, seconds, None, 1) for seconds in [4.0, 3.0, 2.0][:world]]
    best = slowest(times, fair_shares(times, 8 * world))
    expected = cases.drifted_alone(world)
    for rank in range(world):
        found = shared(world)[rank][f"drifted {whole_epochs}"]
        assert found["at_last"][0] < found["before"][0]
        assert slowest(times, found["at_last"]) == pytest.approx(best)
        for ours, theirs in zip(found["parameters"], expected, strict=True):
            assert (ours - theirs).norm() <= 1e-12 * theirs.norm()
        moved = [line for line in found["said"] if "in place of" in line]
        assert len(moved) == (1 if rank == 0 else 0)
        assert rank or not whole_epochs or "from the next epoch on" in moved[0]


@pytest.mark.parametrize("world", WORLDS)
def test_no_rank_is_to_be_left_out_before_micro_batches_were_tried(shared, world):
    for rank in range(world):
        found = shared(world)[rank]["not told"]
        assert not found["leave_out"]
        assert ("accumulate= says how many batches" in "".join(found["said"])) == (rank == 0)


@pytest.mark.parametrize("world", WORLDS)
def test_what_was_measured_is_kept(shared, world):
    for rank in range(world):
        kept = shared(world)[rank]["kept"]
        first, second = kept["first"], kept["second"]
        for name in ("shares", "even", "times", "seconds", "even_seconds", "predicted", "micro"):
            assert first[name] == second[name]
        assert second["steps"] < 12 < first["steps"]  # the probe's alone
        assert ("were measured before: " in "".join(second["said"])) == (rank == 0)
        assert f"batch: measured with {8 * world}, this training has {4 * world}" in kept["other"]


@pytest.mark.parametrize("world", WORLDS)
def test_wrong_use_is_refused(shared, world):
    for rank in range(world):
        said = shared(world)[rank]["refused"]
        assert said["none"].startswith("accumulate: 0; expected")
        assert f"{world} samples for {world} ranks; each needs at least 4" in said["batch"]
        assert "it updates parameters" in said["updates"]
        assert "SyncBatchNorm" in said["norm"]
        assert "loader's `last` is true" in said["summed elsewhere"]
        assert "cannot say where the accumulated batches end" in said["parts"]


def test_micro_batches_are_as_equal_as_can_be():
    assert cut(12, 4) == [4, 4, 4]
    assert cut(13, 4) == [4, 3, 3, 3]
    assert cut(3, 2, least=2) == [3]
    assert cut(0, 4) == [0]
    time = StepTime(0.0, 1.0, None, 4)
    assert in_words(13, time) == "13 in 4 micro-batches of 3 to 4"
    assert in_words(4, time) == "4 in 1 micro-batch of 4"


def test_every_micro_batch_costs_what_a_pass_costs():
    time = StepTime(2.0, 1.0, None, 4)
    assert [time.of(n) for n in (0, 1, 4, 5, 8)] == [2, 3, 6, 9, 12]
    assert time.slowed(2).of(5) == 18


def test_ranks_that_make_as_many_passes_wait_in_each():
    times = [StepTime(0.5, 1.0, passes=3), StepTime(0.5, 3.0, passes=3)]
    assert in_passes(5, 3) == [2, 2, 1] and in_passes(2, 3) == [1, 1, 0]
    assert [times[1].of(n) for n in (0, 2, 5)] == [10.5, 10.5, 16.5]
    # 14, 13, 13 samples beside 5, 4, 4 of three seconds each
    assert slowest(times, [40, 13]) == 15.5 + 13.5 + 13.5
    assert slowest(times, [1, 1]) == 3 * 3.5


def test_larger_micro_batches_are_taken_where_they_are_faster():
    assert best_micro({1: 1.0, 2: 1.5, 3: 2.1}, 1) == 3
    assert best_micro({1: 1.0, 2: 1.99, 3: 2.98}, 1) == 1
    assert best_micro({1: 0.1, 2: 2.0, 3: 3.0}, 2) == 2
    assert best_micro({1: 1.0}, 2) == 1


def test_loops_that_count_batches_are_told_this_ranks_steps():
    """Of an epoch of three steps, of 3, 3 and 1 batches of this rank, 2 in the even script."""
    sizes = [[4, 4, 4], [4, 4, 4], [2]]
    steps = OwnSteps(SimpleNamespace(parts=2, micro_sizes=sizes.__getitem__, global_batches=3))
    assert math.ceil(7 / steps) == 3 and (6 / steps, 1 / steps) == (3.0, 0.5)
    assert [number for number in range(8) if number % steps == 0] == [0, 3, 6, 7]
    assert [number // steps for number in range(8)] == [0, 0, 0, 1, 1, 1, 2, 3]
    assert steps == 2 and torch.ones(1) / steps == 0.5
