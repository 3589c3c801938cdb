"""Inputs, parameters and buffers may be called whatever they like, also alike."""

import torch
from support import Case, compare_steps
from torch import nn
from torch.nn import functional as F

from heterog.export import interpreter

DOUBLE = {"double": True}


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.05)


class Named(nn.Module):
    """Parameters and buffers called as operators, as settings and as inputs."""

    def __init__(self):
        super().__init__()
        self.mul = nn.Parameter(torch.randn(6))
        self.step = nn.Parameter(torch.randn(6))
        self.y = nn.Parameter(torch.randn(6))
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("lr", torch.ones(6))
        self.add = nn.Linear(6, 6)
        self.update = nn.Linear(6, 6)

    def forward(self, x):
        self.mean = self.mean * 0.5 + x.mean(0)
        self.lr += 0.25
        x = torch.tanh(self.add(x * self.mul + self.step)) * self.lr + self.mean.sin()
        return self.update(x).mul(self.y)


def test_parameters_and_buffers_called_as_operators_and_settings():
    graph = compare_steps(
        Case(
            Named,
            lambda batch: (torch.randn(batch, 6), torch.randn(batch, 6)),
            lambda model, x, y: F.mse_loss(model(x), y),
            adam,
            DOUBLE,
        ),
        steps=3,
    )
    names = [t["name"] for t in graph["tensors"]]
    assert len(set(names)) == len(names)
    kept = {t["name"]: t["role"] for t in graph["tensors"]}
    assert {kept[name] for name in ("mul", "step", "y", "add.weight")} == {"parameter"}
    assert {kept[name] for name in ("mean", "lr")} == {"buffer"}
    assert set(interpreter.settings_of(graph)) == {"lr", "step"}
    assert set(interpreter.data_inputs(graph)) == {"x", "y"}


def test_inputs_called_as_operators_and_settings():
    """A diffusion model's t, a rate and a step that come from the data."""

    def loss(model, x, t, lr, step, mean):
        return (model(x + t).mul(lr) - step + mean).square().mean()

    def make_inputs(batch):
        return (torch.randn(batch, 6), *(torch.randn(batch, 1) for _ in range(4)))

    graph = compare_steps(
        Case(lambda: nn.Linear(6, 4), make_inputs, loss, adam, DOUBLE), steps=3
    )
    assert list(interpreter.data_inputs(graph)) == ["x", "t", "lr", "step", "mean"]
    inputs = {t["name"]: t["shape"] for t in graph["tensors"] if t["role"] == "input"}
    assert inputs["lr"] == inputs["step"] == ["B", 1]


def test_older_files_have_settings_by_their_bare_names():
    def tensor(name, role, shape, dtype):
        return {"name": name, "role": role, "shape": shape, "dtype": dtype}

    old = {
        "tensors": [
            tensor("x", "input", ["B", 2], "float32"),
            tensor("lr", "input", [], "float64"),
            tensor("step", "input", [], "float64"),
        ]
    }
    assert interpreter.settings_of(old) == {"lr": 1, "step": 2}
    assert interpreter.data_inputs(old) == {"x": 0}
