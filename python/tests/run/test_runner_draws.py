"""Models that draw random numbers: every plan draws the same."""

from dataclasses import replace

import pytest
from draw_models import MODELS
from runner_cases import CASES, batches, train_plainly
from runner_support import check_state

STEPS = 5


def train(make, name, planner, **config):
    runner = make(name, planner, **config)
    losses = [runner.step(batch) for batch in batches(CASES[name], STEPS)]
    return losses, runner.state_dict()


@pytest.mark.parametrize("name", MODELS)
def test_any_plan_trains_as_one_device(make, name):
    losses, state = train(make, name, "single", seed=3)
    for planner in ("1:7:4-ar", "random"):
        found, found_state = train(make, name, planner, seed=3)
        assert found == pytest.approx(losses, rel=1e-10)
        check_state(found_state, state, 1e-10)


def test_numbers_follow_from_the_seed(make):
    runs = [train(make, "noise", "1:7:4-ps", seed=seed) for seed in (3, 3, 4)]
    assert runs[0][0] == runs[1][0]
    assert abs(runs[0][0][0] - runs[2][0][0]) > 1e-6


@pytest.mark.parametrize("name", ["variational", "rrelu"])
def test_in_single_precision(make, name):
    losses, state = train(make, name, "single", double=False)
    found, found_state = train(make, name, "1:7:4-ar", double=False)
    assert found == pytest.approx(losses, rel=1e-4)
    check_state(found_state, state, 1e-4)
    # The numbers of float32 are those of float64, rounded.
    exact, _ = train(make, name, "single")
    assert found == pytest.approx(exact, rel=1e-4)


def test_numbers_change_with_the_step(make):
    runner = make("variational", "single")
    batch = batches(CASES["variational"], 1)[0]
    losses = {runner.step(batch) for _ in range(3)}
    assert len(losses) == 3


def test_dropout_off(make):
    case = CASES["dropout of channels"]

    def without():
        model = case.model()
        for module in model:
            if hasattr(module, "p"):
                module.p = 0.0
        return model

    losses, state = train(make, "dropout of channels", "1:7:4-ar", dropout=False)
    expected = train_plainly(replace(case, model=without), STEPS)
    assert losses == pytest.approx(expected.losses, rel=1e-10)
    check_state(state, expected.state, 1e-10)
