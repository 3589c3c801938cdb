"""In-place writes are removed as functionalisation removes them: the same nodes, the same names."""

import pytest
import torch
from torch import nn
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

import heterog
from heterog.export.graph import record
from heterog.export.graph.writer import pack_graph
from heterog.export.graph.writes import without_writes
from heterog.export.tracing import constants, trace

_aten = torch.ops.aten


def written_and_read(a, b):
    x = a + 1
    x.add_(b)
    return x * 2


def views_from_before(a, b):
    x = a + 1
    first, second = x.view(6, 4), _aten.detach(x)
    x.relu_()
    return first + 1, second * 2, first - 1


def views_of_views(a, b):
    x = a + 1
    x.relu_()
    first = x.view(6, 4)
    second = first.t()
    return second * 2, first + 1, second


def parts(a, b):
    x = a + 1
    x.mul_(2)
    return [part * 2 for part in x.split(2)]


def written_twice(a, b):
    x = a + 1
    first = x.view(24)
    x.relu_()
    second = x.view(24)
    y = first + second
    x.add_(b, alpha=3)
    return y, first + second, x


def one_into_another(a, b):
    x, y = a + 1, b + 1
    x.relu_()
    y.add_(x)
    x.add_(y)
    return x, y


def of_numbers(a, b):
    x = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    x.add_(1)
    return a * x


def statistics(a, b):
    mean, variance = b.sum(0) * 0, b.sum(0) * 0 + 1
    made = F.batch_norm(a, mean, variance, training=True)
    return made.relu_(), mean, variance


def another_type(a, b):
    x = torch.ones(4, 6, dtype=torch.int64)
    x.copy_(a)
    return x


SIMPLE = [
    written_and_read, views_from_before, views_of_views, parts, written_twice, one_into_another,
    of_numbers, statistics, another_type,
]  # fmt: skip


def through_a_view(a, b):
    x = a + 1
    x[0].add_(1)
    return x


def an_argument(a, b):
    a.add_(1)
    return a * 2


def lines_of(graph: torch.fx.Graph) -> list:
    return [
        (node.op, node.name, str(node.target) * (node.op != "placeholder"), str(node.args),
         str(node.kwargs), _forms(node.meta.get("val")))
        for node in graph.nodes
    ]  # fmt: skip


def _forms(value):
    if isinstance(value, (list, tuple)):
        return [_forms(item) for item in value]
    return value if value is None else (value.dtype, value.shape, value.stride())


def traced(function):
    """The trace as it runs, and through functionalisation."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        arguments = [torch.empty(4, 6), torch.empty(4, 6)]
    with torch.no_grad():
        with enable_python_dispatcher():
            first = make_fx(lambda *given: function(*given))(*arguments)
        constants.lift_constants(first)
        places = sum(node.op == "placeholder" for node in first.graph.nodes)
        with mode:
            arguments += [torch.empty(6)] * (places - 2)
            again = torch.func.functionalize(torch.fx.Interpreter(first).run, remove="mutations")
            second = make_fx(lambda *given: again(*given))(*arguments)
    return first, second, mode


@pytest.mark.parametrize("function", SIMPLE)
def test_simple_writes_are_removed_as_functionalisation_does(function):
    first, second, mode = traced(function)
    copied = without_writes(first, mode)
    assert copied is not None
    found, expected = lines_of(copied.graph), lines_of(second.graph)
    assert found[:-1] == expected[:-1]
    assert found[-1][3].strip("([])") == expected[-1][3].strip("([])")


@pytest.mark.parametrize("function", [through_a_view, an_argument])
def test_other_writes_are_left_to_it(function):
    first, _, mode = traced(function)
    assert without_writes(first, mode) is None


class Counts(nn.Module):
    """Writes that are not simple, beside those that are."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 4)
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x):
        self.seen[0] += 1
        return F.relu(self.norm(self.linear(x)), inplace=True) + self.seen


def _exported(model, make_inputs, loss_fn, optimizer) -> bytes:
    step = heterog.export_training_step(
        model, make_inputs, loss_fn, optimizer, "model", check=False
    )
    return pack_graph(step.graph)


class Norms(nn.Module):
    """As image models are built: every write is simple."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
        self.second = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4))
        self.last = nn.Linear(4, 2)

    def forward(self, x):
        h = self.first(x)
        other = self.second(h)
        other += h
        return self.last(F.relu_(other).mean((2, 3)))


@pytest.mark.parametrize("name", ["SGD", "Adam", "Adagrad", "RMSprop", "NAdam", "Adafactor"])
def test_updates_are_the_same_as_by_two_traces(name, monkeypatch):
    torch.manual_seed(3)
    case = (
        nn.Linear(6, 4), lambda b: (torch.randn(b, 6),), lambda m, x: m(x).square().sum(),
        lambda p: getattr(torch.optim, name)(p, lr=0.1),
    )  # fmt: skip
    by_one = _exported(*case)
    copies = []

    def refuses(module, mode):
        copies.append(without_writes(module, mode))

    monkeypatch.setattr(record, "without_writes", refuses)
    assert _exported(*case) == by_one
    assert any(copy is not None for copy in copies)


@pytest.mark.parametrize("simple", [True, False])
def test_steps_are_the_same_as_by_two_traces(simple, monkeypatch):
    torch.manual_seed(3)
    shape = (3, 8, 8) if simple else (6,)
    case = (
        Norms() if simple else Counts(), lambda b: (torch.randn(b, *shape),),
        lambda m, x: m(x).square().sum(), lambda p: torch.optim.SGD(p, lr=0.1),
    )  # fmt: skip
    by_one = _exported(*case)
    copies = []

    def refuses(module, mode):
        copies.append(without_writes(module, mode))

    monkeypatch.setattr(trace, "without_writes", refuses)
    assert _exported(*case) == by_one
    assert len(copies) == 3 and all((copy is not None) == simple for copy in copies)
