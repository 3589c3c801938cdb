"""Tensors that a model makes of Python numbers while it runs."""

import pytest
import torch
from support import Case, compare, export, inputs_of, state_of
from torch import nn
from torch.nn import functional as F

import heterog
from heterog.export.graph.writer import constants_path, read_constants, read_graph
from heterog.export.interpreter import initial_values, run_step


class Net(nn.Module):
    def __init__(self, then):
        super().__init__()
        self.linear = nn.Linear(6, 4)
        self.then = then

    def forward(self, x):
        return self.then(self.linear(x))


def case(then, **options) -> Case:
    return Case(
        lambda: Net(then),
        lambda batch: (torch.randn(batch, 6), torch.randn(batch, 4)),
        lambda model, x, y: F.l1_loss(model(x), y),
        options={"double": True} | options,
    )


def constants_of(graph: dict) -> list[dict]:
    return [t for t in graph["tensors"] if t["name"].startswith("constant/")]


def table(values) -> Case:
    return case(lambda x: x * torch.tensor(values, dtype=x.dtype))


def test_a_table_stands_in_the_graph():
    graph = compare(table([1.0, -2.0, 0.5, 4.0]))
    (constant,) = constants_of(graph)
    assert (constant["role"], constant["shape"]) == ("buffer", [4])
    assert constant["values"] == {"list": [1.0, -2.0, 0.5, 4.0]}


def test_equal_tables_are_one():
    def then(x):
        for _ in range(3):
            x = x * torch.tensor([1.0, -2.0, 0.5, 4.0], dtype=x.dtype)
        return x + torch.tensor([3.0, -2.0, 0.5, 4.0], dtype=x.dtype)

    assert len(constants_of(compare(case(then)))) == 2


def test_one_number_everywhere_is_an_operator():
    graph = compare(table([0.5, 0.5, 0.5, 0.5]))
    assert [t["role"] for t in constants_of(graph)] == ["activation"]
    assert [op["args"] for op in graph["ops"] if op["op"] == "aten.full.default"][0] == [[4], 0.5]


def test_numbers_and_sizes_that_follow_the_batch():
    def then(x):
        scale = torch.tensor([float(x.shape[0])], dtype=x.dtype)
        shift = torch.tensor([[2.0]] * x.shape[0], dtype=x.dtype)
        share = torch.tensor(3.0 / x.shape[0], dtype=x.dtype)
        return x * scale + shift + share

    graph = compare(case(then))
    args = [op["args"] for op in graph["ops"] if op["op"] == "aten.full.default"]
    assert [["#B", 1], 2.0] in args and [[1], "$1.0B"] in args and [[], "$3/B"] in args


def test_a_table_that_follows_the_batch_is_refused():
    def then(x):
        return x * torch.tensor([[float(i)] for i in range(x.shape[0])], dtype=x.dtype)

    with pytest.raises(heterog.ExportError, match="is another at another batch size"):
        export(case(then))


def test_joining_nothing_with_something():
    def then(x):
        kept = torch.tensor([], dtype=x.dtype)
        return torch.cat([kept, x], dim=-2)

    graph = compare(case(then))
    assert not any("cat" in op["op"] or "full" in op["op"] for op in graph["ops"][:3])


def test_a_constant_that_is_written_to():
    def then(x):
        total = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=x.dtype)
        total += x.sum(0)
        return x * total

    compare(case(then))


def test_no_values_are_lost(tmp_path):
    values = [float(i % 977) for i in range(4 * 5000)]

    def then(x):
        rows = torch.tensor(values, dtype=x.dtype).reshape(5000, 4)
        return x * rows.sum(0)

    one = case(then)
    step = heterog.export_training_step(
        one.model, one.make_inputs, one.loss_fn, one.optimizer, "case", **one.options
    )
    assert step.checked.startswith("equal to PyTorch")
    path = tmp_path / "case.json.gz"
    step.save(path)
    assert constants_path(path) == str(tmp_path / "case.constants.safetensors")
    graph, constants = read_graph(path), read_constants(path)
    (constant,) = constants_of(graph)
    assert constant["values"] == {"file": "constants"}
    assert constants["constant/0"].flatten().tolist() == values

    torch.manual_seed(3)
    model = Net(then).double()
    start = initial_values(graph, state_of(model) | constants)
    inputs = inputs_of(graph, one)
    loss, _ = run_step(graph, start, inputs, 7, lr=0.1, step=1)
    assert torch.allclose(loss, F.l1_loss(model(inputs["x"]), inputs["y"]))
    with pytest.raises(ValueError, match="file of constants beside the graph"):
        initial_values(graph, state_of(model))


def test_what_waits_for_the_form_of_a_tensor_is_given_its_sizes():
    def then(x):
        hidden = x.relu()
        return hidden * torch.ones_like(hidden) + hidden.new_zeros(hidden.shape[0], 1)

    graph = compare(case(then))
    assert not any("_like" in op["op"] or "new_" in op["op"] for op in graph["ops"])
