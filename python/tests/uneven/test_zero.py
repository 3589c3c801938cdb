"""Optimizer state dealt by free memory: the training of one process, and its checkpoints."""

import pytest
import torch
import zero_cases as cases
from ranks_of_tests import found_by
from rounds import thorough

from heterog.uneven.zero_by_memory import dealt

WORLDS = thorough([2, 3], but={3})

shared = found_by(cases.worker)


def assert_equal(ours, theirs) -> None:
    assert (ours - theirs).norm() <= 1e-12 * theirs.norm()


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", list(cases.CASES))
def test_it_trains_as_one_process(shared, name, world):
    expected, _ = cases.alone(name, world)
    for rank in range(world):
        for ours, theirs in zip(shared(world)[rank][name]["parameters"], expected, strict=True):
            assert_equal(ours, theirs)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", list(cases.CASES))
def test_checkpoints_are_those_of_one_process(shared, name, world):
    _, expected = cases.alone(name, world)
    model = cases.build()
    optimizer = torch.optim.AdamW(cases.groups_of(cases.CASES[name], model))
    for ours, theirs in zip(shared(world)[0][name]["states"], expected, strict=True):
        optimizer.load_state_dict(ours)  # PyTorch's own takes it
        assert ours["state"].keys() == theirs["state"].keys()
        for key, slots in theirs["state"].items():
            for slot in ("step", "exp_avg", "exp_avg_sq"):
                assert_equal(ours["state"][key][slot], slots[slot])
        for one, other in zip(ours["param_groups"], theirs["param_groups"], strict=True):
            assert {k: one[k] for k in ("lr", "weight_decay", "params")} == {
                k: other[k] for k in ("lr", "weight_decay", "params")
            }


@pytest.mark.parametrize("world", WORLDS)
def test_state_is_dealt_by_memory(shared, world):
    memory = cases.MEMORY[world]
    total = sum(p.numel() for p in cases.build().parameters())
    for name in ("by memory", "groups", "views"):
        for turn, free in enumerate((memory, memory[::-1])):
            own = [shared(world)[rank][name]["own"][turn] for rank in range(world)]
            assert sum(own) == total
            for held, part in zip(own, free, strict=True):
                # The largest parameter is 0.4 of all; what is left evens out what it leaves.
                assert abs(held / total - part / sum(free)) < 0.2
            assert own[free.index(max(free))] == max(own) > total / world
    said = shared(world)[0]["by memory"]["said"][0]
    assert f"of the optimizer's state of {total} elements, rank 0 (24.0 GB free): " in said


@pytest.mark.parametrize("world", WORLDS)
def test_ranks_of_a_host_have_its_memory_together(shared, world):
    for rank in range(world):
        found = shared(world)[rank]["measured"]
        assert all(free > 0 for free in found["memory"]) and min(found["elements"]) > 0
        assert len(found["said"]) == (rank == 0)


@pytest.mark.parametrize("world", WORLDS)
def test_wrong_use_is_refused(shared, world):
    for rank in range(world):
        said = shared(world)[rank]["refused"]
        assert said["sharded"].startswith("model: fully_shard has cut its state up")
        assert said["overlap"].startswith("overlap_with_ddp: True;")
        assert said["memory"] == "memory: -1; expected bytes, 0 or more"
        assert said["none left"].startswith("memory: no rank has any left")
        assert "parameters of float32 and float64; ZeroRedundancyOptimizer takes those of one" in said["dtypes"]
        assert "no parameters that learn" in said["nothing"]
        assert "sends parameters to the other ranks in each update" in said["whole step"]


def test_the_largest_goes_where_most_is_free():
    assert dealt([8, 4, 2, 2], [1, 1, 2], [0, 0, 0]) == [2, 0, 1, 1]
    assert dealt([1, 2, 1], [3, 1], [0, 0]) == [1, 0, 0]
    assert dealt([5, 5], [0, 1], [0, 0]) == [1, 1]
    assert dealt([4], [1, 1], [3, 0]) == [1]
