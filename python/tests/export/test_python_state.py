"""Steps that count, keep and draw in Python: the training that PyTorch does, or a refusal by name."""

import random

import numpy
import pytest
import torch
from runner_support import error_of
from torch import nn
from torch.nn import functional as F

import heterog

total = 0
BATCH = 6


def inputs(batch):
    return torch.randn(batch, 5, dtype=torch.float64), torch.randn(batch, 3, dtype=torch.float64)


def squares(model, x, y):
    return F.mse_loss(model(x), y)


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 8)
        self.second = nn.Linear(8, 3)
        self.steps, self.rate, self.seen = 0, 0.3, None
        self.table = {"n": 0}
        self.history = []
        self.generator = random.Random(3)
        self.numbers = numpy.random.default_rng(3)

    def forward(self, x):
        return self.second(self.change(torch.relu(self.first(x))))


def model_that(change, **settings):
    made = type("Model", (Base,), {"change": change})()
    for name, value in settings.items():
        setattr(made, name, value)
    return made.double()


# ---- what a later step computes by ----


def warms_up(self, h):
    self.steps += 1
    return h * min(1.0, self.steps / 1000)


def every_tenth(self, h):
    self.steps += 1
    return h * 2 if self.steps % 10 == 0 else h


def in_a_table(self, h):
    self.table["n"] += 1
    return h * 2 if self.table["n"] > 100 else h


def of_a_class(self, h):
    type(self).calls = getattr(type(self), "calls", 0) + 1
    return h * 2 if type(self).calls > 100 else h


def of_the_module(self, h):
    global total
    total += 1
    return h * 2 if total > 100 else h


def only_backward(self, h):
    self.steps += 1
    weight = 1 / self.steps
    h.register_hook(lambda gradient: gradient * weight)
    return h


def from_the_last_step(self, h):
    if self.seen is not None:
        h = h + 0.1 * self.seen.mean()
    self.seen = h.detach()
    return h


def by_its_history(self, h):
    self.history.append(1)
    return h * 2 if len(self.history) > 100 else h


def first_time(self, h):
    if self.seen is None:
        self.seen = True
        return h * 3
    return h


COUNTS = {
    warms_up: "model.steps", every_tenth: "model.steps", in_a_table: "model.table['n']",
    of_a_class: "class Model.calls", of_the_module: "total", only_backward: "model.steps",
    from_the_last_step: "model.seen", by_its_history: "model.history", first_time: "model.seen",
}  # fmt: skip


@pytest.mark.parametrize("change", COUNTS, ids=lambda change: change.__name__)
@pytest.mark.parametrize("check", [False, None])
def test_steps_that_go_on_by_python_are_refused_by_name(change, check):
    model = model_that(change)
    with pytest.raises(heterog.ExportError) as caught:
        heterog.export_training_step(
            model, inputs, squares, lambda p: torch.optim.SGD(p, lr=0.1), "counts", check=check
        )
    assert COUNTS[change] in str(caught.value) and "\n" not in str(caught.value)
    assert model.steps == 0 and model.seen is None and model.table == {"n": 0}
    assert model.history == [] and total == 0


# ---- what a step draws ----


def drops_layers(self, h):
    return h if random.random() < self.rate else torch.tanh(h)


def drops_by_numpy(self, h):
    return h if numpy.random.uniform(0, 1) < self.rate else torch.tanh(h)


def scales(self, h):
    return h * random.random()


def mixes(self, h):
    return h * numpy.random.beta(2.0, 2.0)


def chooses(self, h):
    return h * random.choice([1.0, 2.0])


def by_its_own(self, h):
    return h * self.generator.random()


def by_its_own_of_numpy(self, h):
    return h * self.numbers.random()


def one_number(self, h):
    return h * torch.rand([]).item()


DRAWS = {
    drops_layers: "a branch on a random number", drops_by_numpy: "a branch on a random number",
    scales: "computed with", mixes: "numpy.random", chooses: "Python's random",
    by_its_own: "model.generator", by_its_own_of_numpy: "model.numbers",
    one_number: "computed with",
}  # fmt: skip


@pytest.mark.parametrize("change", DRAWS, ids=lambda change: change.__name__)
@pytest.mark.parametrize("seed", range(3))
def test_steps_that_draw_in_python_are_refused(change, seed):
    random.seed(seed)
    numpy.random.seed(seed)
    with pytest.raises(heterog.ExportError) as caught:
        heterog.export_training_step(
            model_that(change), inputs, squares, lambda p: torch.optim.SGD(p, lr=0.1), "draws",
            check=False,
        )  # fmt: skip
    assert DRAWS[change] in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("change", [drops_layers, drops_by_numpy])
def test_a_rate_of_zero_or_one_decides(change):
    for rate, tanh in ((0.0, True), (1.0, False)):
        step = heterog.export_training_step(
            model_that(change, rate=rate), inputs, squares,
            lambda p: torch.optim.SGD(p, lr=0.1), "draws",
        )  # fmt: skip
        assert tanh == any(op["op"] == "aten.tanh.default" for op in step.graph["ops"])


# ---- what a step leaves, and does not look at ----


def counts_for_a_log(self, h):
    self.steps += 1
    if self.training:
        self.rate = self.rate + 0.5
    f"{self.steps} steps"
    return h


def keeps_what_it_made(self, h):
    if self.seen is None:
        self.seen = torch.full((8,), 2.0, dtype=h.dtype)
    self.last = h
    return h * self.seen


def test_counters_that_nothing_reads_go_on_in_a_runner(cache):
    torch.manual_seed(0)
    model, plain = model_that(counts_for_a_log), model_that(counts_for_a_log)
    plain.load_state_dict(model.state_dict())
    with runner_of(model, cache) as runner:
        optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
        for number in range(3):
            torch.manual_seed(number)
            batch = inputs(BATCH)
            runner.step(batch)
            optimizer.zero_grad()
            squares(plain, *batch).backward()
            optimizer.step()
        assert (model.steps, model.rate) == (plain.steps, plain.rate) == (3, 1.8)
        model.steps = 10
        runner.step(batch)
        assert model.steps == 11
    squares(plain, *batch).backward()


def test_what_is_made_once_and_what_is_kept_to_be_looked_at(cache, capsys):
    model = model_that(keeps_what_it_made)
    with runner_of(model, cache) as runner:
        runner.run(2)
        assert model.seen is None and not hasattr(model, "last")
    plain = model_that(keeps_what_it_made)
    plain.load_state_dict(model.state_dict())
    assert error_of(plain(inputs(4)[0]).detach(), model(torch.zeros(4, 5).double()).detach()) >= 0


def runner_of(model, cache):
    return heterog.get_runner(
        model, inputs, squares, torch.optim.SGD(model.parameters(), lr=0.1), "cpu:2",
        {"batch": BATCH, "cache": cache, "threads": 1, "planner": "ev-ar"},
    )  # fmt: skip
