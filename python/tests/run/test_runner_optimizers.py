"""Every optimizer on devices that are not alike: training, state in PyTorch's form, checkpoints."""

import contextlib
import copy
import subprocess

import pytest
import torch
from optimizer_cases import ALL, has_biases, maker
from program import find_program
from rounds import thorough
from runner_cases import BATCH, mlp_inputs, squares
from runner_support import check_optimizer, check_state
from torch import nn

import heterog
from heterog.base.errors import HeterogError

DEVICES = ["V100-PCIE-16GB", "T4"]
STEPS = 5


@contextlib.contextmanager
def in_double():
    """State without dimensions is made in the default precision."""
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def build(name: str, lr: float = 0.03):
    torch.manual_seed(11)
    biases = has_biases(name)
    model = nn.Sequential(nn.Linear(6, 16, bias=biases), nn.ReLU(), nn.Linear(16, 3, bias=biases))
    return model, maker(name, lr)


def batches(count: int) -> list[tuple]:
    made = []
    for number in range(count):
        torch.manual_seed(100 + number)
        made.append(mlp_inputs(BATCH))
    return made


def train(model, optimizer, data, scheduler=None) -> list[float]:
    losses = []
    for x, y in data:
        optimizer.zero_grad()
        loss = squares(model, x.double(), y.double())
        loss.backward()
        with in_double():
            optimizer.step()
        losses.append(loss.item())
        if scheduler is not None:
            scheduler.step()
    return losses


@pytest.fixture
def runner_of(cache):
    with contextlib.ExitStack() as stack:

        def make(name, lr=0.03, optimizer=None, planner="cp-ar", **config):
            model, factory = build(name, lr)
            settings = {"batch": BATCH, "planner": planner, "cache": cache, "double": True,
                        "threads": 1, "any_device": True} | config  # fmt: skip
            made = optimizer(list(model.parameters())) if optimizer else factory
            runner = heterog.get_runner(model, mlp_inputs, squares, made, DEVICES, settings)
            return stack.enter_context(runner)

        yield make


def plain(name: str):
    model, factory = build(name)
    model = model.double()
    return model, factory(list(model.parameters()))


# Those whose updates are the most unlike: by elements, by whole parameters, with branches and with lists.
UNLIKE = {"AdamW", "Adafactor", "ASGD", "Muon", "Lamb", "Switching", "Lists", "SGD dampening"}


@pytest.mark.parametrize("name", thorough(ALL, but=UNLIKE))
def test_training_on_two_devices_is_plain_pytorchs(runner_of, cache, name):
    data = batches(STEPS + 2)
    model, optimizer = plain(name)
    expected = train(model, optimizer, data[:STEPS])
    runner = runner_of(name)
    losses = [runner.step(batch) for batch in data[:STEPS]]
    assert losses == pytest.approx(expected, rel=1e-9)
    check_state(runner.state_dict(), model.state_dict(), 1e-9)
    found = runner.optimizer_state_dict()
    check_optimizer(found, optimizer.state_dict(), 1e-9)

    # A plain optimizer goes on from it, and a runner from a plain optimizer's.
    other, other_optimizer = plain(name)
    other.load_state_dict(runner.state_dict())
    other_optimizer.load_state_dict(copy.deepcopy(found))
    train(other, other_optimizer, data[STEPS:])
    second, second_optimizer = plain(name)
    train(second, second_optimizer, data[:2])
    runner.load_state_dict(second.state_dict())
    runner.load_optimizer_state_dict(second_optimizer.state_dict())
    for batch in data[2:]:
        runner.step(batch)
    check_state(runner.state_dict(), other.state_dict(), 1e-9)
    check_optimizer(runner.optimizer_state_dict(), other_optimizer.state_dict(), 1e-9)

    verify(runner)


def verify(runner) -> None:
    """On random data, beside one device."""
    done = subprocess.run(
        [find_program(), "verify", "--graph", runner.graph_path, "--cluster", runner.cluster_path,
         "--batch", str(BATCH), "--planner", "cp-ps", "--steps", "3"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "the same as one device" in done.stdout


@pytest.mark.parametrize("name", ["Adagrad", "Adafactor", "ASGD", "Switching", "Lamb", "NAdam"])
def test_resuming_is_exact_to_the_bit(runner_of, tmp_path, name):
    data = batches(6)
    whole = runner_of(name, double=False)
    losses = [whole.step(batch) for batch in data]
    first = runner_of(name, double=False)
    assert [first.step(batch) for batch in data[:3]] == losses[:3]
    first.save(tmp_path / "at.safetensors")
    resumed = runner_of(name, double=False)
    resumed.load(tmp_path / "at.safetensors")
    assert resumed.steps_done == 3
    assert [resumed.step(batch) for batch in data[3:]] == losses[3:]
    check_state(resumed.state_dict(), whole.state_dict(), 0)
    check_optimizer(resumed.optimizer_state_dict(), whole.optimizer_state_dict(), 0)


def test_state_before_the_first_step(runner_of):
    """Adagrad's is there when it is made; of most others nothing is."""
    for name in ("Adagrad", "RMSprop"):
        runner = runner_of(name)
        model, factory = build(name)
        optimizer = factory(list(model.double().parameters()))
        check_optimizer(runner.optimizer_state_dict(), optimizer.state_dict(), 0)


def test_state_that_an_optimizer_makes_once_and_has_lost(runner_of):
    """PyTorch's own next step ends in a KeyError."""
    runner = runner_of("Adagrad")
    runner.optimizer.state.clear()
    with pytest.raises(heterog.InputError, match="optimizer state: sum of .* is gone; Adagrad makes it once"):
        runner.step(batches(1)[0])


# ---- momentum as an input ----

CYCLED = {
    "SGD": lambda ps: torch.optim.SGD(ps, lr=0.03, momentum=0.9, nesterov=True),
    "AdamW": lambda ps: torch.optim.AdamW(ps, lr=0.03),
    "RMSprop": lambda ps: torch.optim.RMSprop(ps, lr=0.03, momentum=0.9),
    "NAdam": lambda ps: torch.optim.NAdam(ps, lr=0.03),
}


@pytest.mark.parametrize("name", CYCLED)
def test_one_cycle_cycles_the_momentum(runner_of, name):
    def cycle(optimizer):
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=11)

    data = batches(10)
    model = build("Adam")[0].double()
    optimizer = CYCLED[name](list(model.parameters()))
    expected = train(model, optimizer, data, cycle(optimizer))
    runner = runner_of("Adam", optimizer=CYCLED[name], momentum_input=True)
    scheduler = cycle(runner.optimizer)
    losses = []
    for batch in data:
        losses.append(runner.step(batch))
        scheduler.step()
    assert losses == pytest.approx(expected, rel=1e-9)
    check_state(runner.state_dict(), model.state_dict(), 1e-9)
    verify(runner)


def test_a_momentum_that_changes_is_refused_where_it_is_a_constant(runner_of):
    runner = runner_of("Adam", optimizer=CYCLED["SGD"])
    runner.optimizer.param_groups[0]["momentum"] = 0.8
    with pytest.raises(HeterogError, match=r"momentum is 0.8, .* \(with momentum_input the momentum too"):
        runner.run(1)


def test_a_momentum_of_zero_is_another_step(runner_of):
    runner = runner_of("Adam", optimizer=CYCLED["SGD"], momentum_input=True)
    runner.optimizer.param_groups[0]["momentum"] = 0.0
    with pytest.raises(HeterogError, match="the momentum is 0.0; the step was exported at 0.9"):
        runner.run(1)
    runner.optimizer.param_groups[0]["momentum"] = 0.5
    runner.run(1)


def test_momentum_input_asks_for_one_momentum(runner_of):
    with pytest.raises(HeterogError, match="neither a momentum nor betas"):
        runner_of("Adagrad", momentum_input=True)

    def two(parameters):
        groups = [{"params": parameters[:2]}, {"params": parameters[2:], "momentum": 0.5}]
        return torch.optim.SGD(groups, lr=0.1, momentum=0.9)

    with pytest.raises(HeterogError, match=r"param_groups\[1\] has the momentum 0.5"):
        runner_of("Adam", optimizer=two, momentum_input=True)
