"""A run that launches each step before the loss of the last is read, as on GPUs: all that a program
sees is as without. On CPUs a step has ended once it was launched, which changes none of it."""

import math

import change_cases
import pytest
import torch
from change_cases import CARRIED, data, program
from runner_cases import BATCH, CASES, batches
from runner_support import UNEVEN, check_optimizer, check_state
from test_changes import CHANGED_AFTER, as_before, check_equal, plainly, runner_of  # noqa: F401

import heterog
from heterog.base.errors import HeterogError

STEPS = 5


def as_on_gpus(runner, calls=None):
    runner._on_gpus = True
    for name in ("launch", "finish") if calls is not None else ():

        def noted(*arguments, call=getattr(runner._native, name), name=name):
            calls.append(name)
            return call(*arguments)

        setattr(runner._native, name, noted)
    return runner


AHEAD = ["launch"] + ["launch", "finish"] * (STEPS - 1) + ["finish"]
ONE_BY_ONE = ["launch", "finish"] * STEPS


@pytest.mark.parametrize("planner", ["ev-ar", *UNEVEN])
def test_losses_and_all_that_is_learnt_are_the_same(make, planner):
    given = batches(CASES["mlp"], STEPS)
    given[2] = tuple(x[:7] for x in given[2])  # the plan cut anew, on the same workers
    twin = make("mlp", planner)
    expected = [twin.step(batch) for batch in given]
    calls = []
    runner = as_on_gpus(make("mlp", planner), calls)
    assert runner.run(STEPS, given, drop_last=False) == expected
    assert calls == AHEAD
    check_state(runner.state_dict(), twin.state_dict(), 0)
    check_optimizer(runner.optimizer_state_dict(), twin.optimizer_state_dict(), 0)
    assert runner.steps_done == STEPS and runner.last_step_seconds > 0
    assert runner.step(given[0]) == twin.step(given[0])


# Those that read, write, and bind anew what the workers hold; learning rates; steps of its own.
@pytest.mark.parametrize(
    "change", [one for one in CARRIED if one.__name__ in (
        "clamp_data", "through_numpy", "other_memory", "load_optimizer", "write_state",
        "steps_by_itself", "fewer_rate", "write_buffer",
    )], ids=lambda change: change.__name__)  # fmt: skip
def test_what_the_data_writes_while_a_step_is_on_its_way(cache, change):
    check_changes(cache, change, {})


def test_a_step_that_becomes_another_meanwhile(cache):
    check_changes(cache, change_cases.eval_mode, {"on_change": "export"})


def check_changes(cache, change, config):
    expected, losses = plainly(change, change_cases.sgd)
    found = program()

    def drawn():
        for number, batch in enumerate(data(STEPS)):
            if number == CHANGED_AFTER:
                change(found)
            yield batch

    with runner_of(found, cache, **config) as runner:
        found.step = runner.step
        assert as_on_gpus(runner).run(STEPS, drawn()) == pytest.approx(losses, rel=1e-10)
        check_equal(found, expected)
        assert found.extra == pytest.approx(expected.extra, rel=1e-10)


def test_what_the_data_asks_of_a_step_on_its_way(make):
    runner, twin = make("mlp"), make("mlp")
    seen = []

    def drawn():
        for batch in batches(CASES["mlp"], STEPS):
            seen.append((runner.steps_done, runner.last_step_seconds is not None, runner.outputs()
                         if runner.steps_done else {}))  # fmt: skip
            yield batch

    calls = []
    as_on_gpus(runner, calls).run(STEPS, drawn())
    assert [(done, is_there) for done, is_there, _ in seen] == [(n, n > 0) for n in range(STEPS)]
    assert calls == ONE_BY_ONE  # each was waited for when it was asked for
    twin.run(STEPS, batches(CASES["mlp"], STEPS))
    check_state(runner.state_dict(), twin.state_dict(), 0)


def test_reports_are_of_the_step_that_was_read(make):
    given = batches(CASES["mlp"], STEPS)
    lines, expected = [], []
    twin = make("mlp")
    twin.run(STEPS, given, on_step=heterog.StepLines(twin, say=expected.append))
    calls = []
    runner = as_on_gpus(make("mlp"), calls)
    runner.run(STEPS, given, on_step=[heterog.StepLines(runner, say=lines.append)])
    assert calls == AHEAD

    def without_times(lines):
        return [[part for part in line.split(", ") if not part.endswith(" ms")] for line in lines]

    assert without_times(lines) == without_times(expected) and len(lines) == STEPS


def test_a_function_that_may_change_something_is_called_between_steps(make):
    given = batches(CASES["mlp"], STEPS)
    calls = []
    runner = as_on_gpus(make("mlp"), calls)
    seen = []

    def halve(number, loss):
        seen.append((number, runner.steps_done))
        runner.optimizer.param_groups[0]["lr"] /= 2

    losses = runner.run(STEPS, given, on_step=halve)
    assert calls == ONE_BY_ONE
    assert seen == [(n, n) for n in range(1, STEPS + 1)]
    expected = []
    runner = make("mlp")
    for number, batch in enumerate(given):
        expected.append(runner.step(batch))
        halve(number + 1, expected[-1])
    assert losses == expected
    assert len(as_on_gpus(make("mlp")).run(4, given, on_step=[lambda number, _: number == 2])) == 2


def bad():
    return torch.full((BATCH, 6), math.nan), torch.zeros(BATCH, 3)


def test_a_loss_that_is_no_number_has_its_own_step(make, tmp_path):
    given = batches(CASES["mlp"], 4)
    runner, twin = as_on_gpus(make("mlp")), make("mlp")
    runner.save(tmp_path / "before.safetensors")
    with pytest.raises(heterog.LossNotFinite, match="not a finite number in step 2"):
        runner.run(4, [given[0], bad(), *given[2:]])
    assert runner.steps_done == 3  # one more was on its way
    runner.load(tmp_path / "before.safetensors")
    assert runner.run(4, given) == twin.run(4, given)


def test_data_that_fails_leaves_whole_steps(make):
    given = batches(CASES["mlp"], 3)

    def drawn(batches):
        yield from batches
        raise ValueError("of its own making")

    runner, twin = as_on_gpus(make("mlp")), make("mlp")
    with pytest.raises(ValueError, match="of its own making"):
        runner.run(4, drawn(given[:2]))
    assert runner.steps_done == 2
    twin.run(2, given)
    assert runner.step(given[2]) == twin.step(given[2])
    with pytest.raises(HeterogError, match="it has"):
        runner.run(4, [given[0], (torch.zeros(5, 7), torch.zeros(5, 3))])
    assert runner.steps_done == 4
    # What failed first is said.
    with pytest.raises(heterog.LossNotFinite, match="step 5"):
        runner.run(4, drawn([bad()]))


def test_a_step_of_another_thread_comes_between(make):
    given = batches(CASES["mlp"], 3)
    runner, twin = as_on_gpus(make("mlp")), make("mlp")
    own = []

    def drawn():
        yield given[0]
        own.append(runner.step(given[1]))
        yield given[2]

    losses = runner.run(2, drawn())
    expected = [twin.step(batch) for batch in given]
    assert [losses[0], own[0], losses[1]] == expected
