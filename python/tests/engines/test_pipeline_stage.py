"""Stages of a model under torch.distributed.pipelining: the training of one process."""

import engine_cases as cases
import pytest
import torch
from ranks_of_tests import found_by
from rounds import thorough

WORLDS = thorough([2, 3], but={3})

shared = found_by(cases.worker)


@pytest.fixture(scope="module")
def whole():
    return {name: cases.whole(name) for name in cases.CASES}


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", list(cases.CASES))
@pytest.mark.parametrize("schedule", ["Schedule1F1B", "ScheduleGPipe"])
def test_it_trains_as_one_process(shared, whole, name, world, schedule):
    losses, gradients, parameters = whole[name]
    ranks = [one[name, schedule] for one in shared(world)]
    for one in ranks:
        assert one["losses"] == pytest.approx(losses, rel=1e-12)
        for what, expected in (("gradients", gradients), ("parameters", parameters)):
            for key, value in one[what].items():
                assert (value - expected[key]).norm() <= 1e-12 * expected[key].norm(), (what, key)
    # Each is trained somewhere, and no rank holds all of them.
    assert set().union(*(one["parameters"] for one in ranks)) == parameters.keys()
    total = sum(p.numel() for p in cases.build(name).parameters())
    assert max(one["held"] for one in ranks) < total


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name,tied", [("gpt2", "transformer.wte.weight"), ("positions", "scale")])
def test_what_stages_share_is_the_same_after_steps(shared, name, tied, world):
    other = "lm_head.weight" if name == "gpt2" else tied
    first, last = (shared(world)[rank][name, "Schedule1F1B"]["parameters"] for rank in (0, world - 1))
    assert torch.equal(first[tied], last[other])


@pytest.mark.parametrize("world", WORLDS)
def test_what_does_not_fit_is_one_line(shared, world):
    for rank in shared(world):
        said = rank["refused"]
        assert f"{world + 1} stages; start {world + 1} processes, one a stage, not {world}" in said["ranks"]
        assert "the model has no module 'transformer.wte'" in said["model"]
        assert "use_cache=False" in said["cache"]
        assert "input_ids: 3 samples;" in said["batch"] and "a batch of 8" in said["batch"]
        assert f"stages[{world - 1}]: reads more than the model's inputs and" in said["around"]
        for what in ("few", "words"):
            assert f"no order of passes for {world} stages and 4 micro-batches: " in said[f"order of {what}"]
        assert "give schedule_csv=, the file of `hand-over --schedule-csv`" in said["no order"]
        assert "module 'head' has a tensor of int64 as its first argument" in said["words"]
