"""Weights of unequal shares under what scripts do beside a plain step: real processes against one."""

import pytest
import weighted_cases as cases
from ranks_of_tests import found_by
from rounds import thorough

shared = found_by(cases.worker)
WORLDS = thorough([2, 3], but={3})


def assert_equal(found: dict, expected: dict) -> None:
    assert found["state"].keys() == expected["state"].keys()
    for name, value in expected["state"].items():
        error = (found["state"][name] - value).double().norm()
        assert error <= 1e-12 * value.double().norm(), name


def assert_same_steps(found: dict, expected: dict) -> None:
    assert found["skipped"] == expected["skipped"]
    assert found["scale"] == expected["scale"]


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", list(cases.RUNS))
def test_ranks_train_as_one_process(shared, name, world):
    run = cases.RUNS[name]
    expected = cases.train_alone(run, world)
    for rank in range(world):
        assert_equal(shared(world)[rank][name], expected)
        assert_same_steps(shared(world)[rank][name], expected)
    if run.overflow:
        assert sum(expected["skipped"]) == len(run.overflow)


@pytest.mark.parametrize("world", WORLDS)
def test_shares_move_within_an_epoch(shared, world):
    shares = cases.SHARES[world]
    # Epochs begin with the shares that the one before ended with.
    turned = shares[::-1]
    for rank in range(world):
        seen = shared(world)[rank]["moved"]["seen"]
        first, second = seen[: cases.BATCHES], seen[cases.BATCHES : 2 * cases.BATCHES]
        assert first[:4] == [shares[rank]] * 2 + [turned[rank]] * 2
        assert second[:4] == [turned[rank]] * 2 + [shares[rank]] * 2


@pytest.mark.parametrize("world", WORLDS)
def test_ranks_with_fewer_batches_join(shared, world):
    expected = cases.joined_alone(world)
    for rank in range(world):
        assert_equal(shared(world)[rank]["joined"], expected)


@pytest.mark.parametrize("world", WORLDS)
def test_what_weighed_outputs_cannot_make_exact_is_refused(shared, world):
    for rank in range(world):
        said = shared(world)[rank]["errors"]
        assert f"none for rank {world - 1}" in said["stand-in"]
        assert "an input of the model needs a gradient" in said["twice through"]
        assert "returns a set" in said["strange output"]
        assert "runs a backward pass before it has returned them" in said["backward within"]
