"""Under autocast to float16 softmax reads float16 and gives float32, without a cast beside it."""

import pytest
import torch
from support import Case, compare_narrow, export
from torch import nn
from torch.nn import functional as F

import heterog
from heterog.export.operators.autocast import autocast


class Mixed(nn.Module):
    """A softmax in the middle; its result is read in float32 and in float16."""

    def __init__(self):
        super().__init__()
        self.into = nn.Linear(6, 16)
        self.out = nn.Linear(16, 5)

    def forward(self, x):
        weights = self.into(x).softmax(-1)
        return self.out(weights * 3) + weights.sum()


class Shared(Mixed):
    """Others read the wider copy too, so it is made."""

    def forward(self, x):
        h = self.into(x).float()
        return self.out(h.softmax(-1) + h.tanh())


def classes(batch):
    return torch.randn(batch, 6), torch.randint(5, (batch,))


def loss_fn(model, x, y):
    return F.cross_entropy(model(x), y)


def case(model=Mixed, narrow="float16"):
    return Case(model, classes, loss_fn, options={"autocast": narrow, "loss_scaling": False})


def dtypes(graph, name):
    """Of what the operators of this name read first, and of what they give."""
    tensors = graph["tensors"]
    return [
        (tensors[int(op["args"][0][1:])]["dtype"], tensors[op["outputs"][0]]["dtype"])
        for op in graph["ops"]
        if op["op"] == f"aten.{name}.default"
    ]


def test_no_cast_stands_beside_it():
    graph = export(case())
    assert dtypes(graph, "_softmax") == [("float16", "float32")]
    assert dtypes(graph, "_log_softmax") == [("float16", "float32")]
    assert dtypes(graph, "_softmax_backward_data") == [("float32", "float16")]
    assert dtypes(graph, "_log_softmax_backward_data") == [("float32", "float16")]


def test_where_others_read_the_cast_it_stays():
    assert dtypes(export(case(Shared)), "_softmax") == [("float32", "float32")]


def test_of_bfloat16_pytorch_makes_a_wider_copy():
    assert dtypes(export(case(narrow="bfloat16")), "_log_softmax") == [("float32", "float32")]


def test_numbers_are_those_of_autocast():
    # Each gradient is a sum of a dozen numbers of 11 binary digits.
    compare_narrow(case(), 1e-3, 1e-2, 1e-3)


@pytest.mark.parametrize("planner", ["single", "ev-ar"])
def test_it_runs_on_cpus(planner, tmp_path):
    torch.manual_seed(3)
    model, eager = Mixed(), Mixed()
    model.load_state_dict(eager.state_dict())

    def sgd(parameters):
        return torch.optim.SGD(parameters, lr=0.1)

    config = {"batch": 8, "autocast": "float16", "planner": planner, "cache": str(tmp_path),
              "loss_scaling": False}  # fmt: skip
    optimizer = sgd(eager.parameters())
    devices = "cpu:1" if planner == "single" else "cpu:2"
    with heterog.get_runner(model, classes, loss_fn, sgd, devices, config) as runner:
        for _ in range(3):
            inputs = classes(8)
            runner.step(inputs)
            optimizer.zero_grad()
            with autocast(torch.float16):
                loss = loss_fn(eager, *inputs)
            loss.backward()
            optimizer.step()
        trained = runner.state_dict()
    for name, tensor in eager.state_dict().items():
        assert torch.allclose(trained[name], tensor, rtol=1e-2, atol=1e-3), name
