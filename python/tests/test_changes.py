"""A program that changes what a runner trains, between two steps: as plain PyTorch would, or refused."""

import change_cases
import pytest
import torch
from change_cases import BATCH, CARRIED, REFUSED, adam, data, inputs, plain_step, program, sgd
from runner_support import error_of

import heterog
from heterog.errors import HeterogError

STEPS = 5
CHANGED_AFTER = 2


@pytest.fixture(autouse=True)
def as_before():
    yield
    change_cases.scale = 1.0
    torch.set_default_dtype(torch.float32)


def runner_of(made, cache, **config):
    settings = {"batch": BATCH, "cache": cache, "batch_norm": "exact", "threads": 1, "planner": "ev-ar"}
    return heterog.get_runner(
        made.model, inputs, made.loss_fn, made.optimizer, "cpu:2", settings | config
    )


def trained(made, change) -> list[float]:
    losses = []
    for number, batch in enumerate(data(STEPS)):
        if number == CHANGED_AFTER:
            change(made)
        losses.append(made.step(batch))
    return losses


def check_equal(found, expected):
    for name, value in expected.model.state_dict().items():
        assert error_of(found.model.state_dict()[name], value) < 1e-10, name
    theirs = expected.optimizer.state_dict()
    own = found.optimizer.state_dict()
    assert own["state"].keys() == theirs["state"].keys()
    for number, entry in theirs["state"].items():
        for key, value in entry.items():
            if isinstance(value, torch.Tensor):
                assert error_of(own["state"][number][key], value) < 1e-10, (number, key)
            else:
                assert own["state"][number][key] == value


def plainly(change, optimizer):
    expected = program(optimizer)
    expected.step = plain_step(expected)
    losses = trained(expected, change)
    change_cases.scale = 1.0
    return expected, losses


@pytest.mark.parametrize("optimizer", [sgd, adam])
@pytest.mark.parametrize("change", CARRIED, ids=lambda change: change.__name__)
def test_what_a_program_writes_is_carried_over(cache, change, optimizer):
    expected, losses = plainly(change, optimizer)
    found = program(optimizer)
    with runner_of(found, cache) as runner:
        found.step = runner.step
        assert trained(found, change) == pytest.approx(losses, rel=1e-10)
        check_equal(found, expected)
        assert found.extra == pytest.approx(expected.extra, rel=1e-10)
    check_equal(found, expected)  # after the end too
