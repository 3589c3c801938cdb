"""A program that changes what a runner trains, between two steps: as plain PyTorch would, or refused."""

import change_cases
import pytest
import torch
from change_cases import BATCH, CARRIED, NOT_EXPORTED, REFUSED, adam, data, inputs, plain_step, program, sgd
from runner_support import error_of

import heterog
from heterog.base.errors import HeterogError

STEPS = 5
CHANGED_AFTER = 2


def forget_globals():
    change_cases.scale = 1.0
    torch.set_default_dtype(torch.float32)
    torch.set_autocast_enabled("cpu", False)
    torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision("highest")


@pytest.fixture(autouse=True)
def as_before():
    yield
    forget_globals()


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
    forget_globals()
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


@pytest.mark.parametrize("change", REFUSED, ids=lambda change: change.__name__)
def test_what_makes_it_another_step_is_refused_by_name(cache, change):
    found = program()
    with runner_of(found, cache) as runner:
        batches = data(STEPS)
        runner.step(batches[0])
        change(found)
        before = runner.state_dict() if change.__name__ != "other_parameter" else {}
        with pytest.raises(HeterogError) as caught:
            runner.step(batches[1])
        assert REFUSED[change] in str(caught.value)
        assert "\n" not in str(caught.value) and caught.value.code == 2
        assert runner.steps_done == 1
        if before:
            for name, value in before.items():
                assert torch.equal(runner.state_dict()[name], value)


@pytest.mark.parametrize("change", [c for c in REFUSED if c not in NOT_EXPORTED],
                         ids=lambda change: change.__name__)  # fmt: skip
def test_or_exported_anew(cache, change):
    expected, losses = plainly(change, sgd)
    found = program()
    with runner_of(found, cache, on_change="export", dropout=True) as runner:
        found.step = runner.step
        if change.__name__ == "other_rate_of_dropout":
            trained(found, change)  # other random numbers
            return
        assert trained(found, change) == pytest.approx(losses, rel=1e-10)
        check_equal(found, expected)
