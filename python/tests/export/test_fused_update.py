"""Updates by PyTorch's fused kernels: which optimizers have one, and that they compute the same."""

import pytest
import torch
from heterog.export.interpreter import initial_values, run_step
from torch import nn
from torch.optim import SGD, Adam, AdamW, RMSprop

from heterog import export_training_step


class Model(nn.Module):
    """`turned` gets a gradient that lies otherwise in memory than it does."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.turned = nn.Parameter(torch.randn(8, 5) / 3)
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        return torch.tanh(self.first(x)) @ self.turned.expand(8, 5) * self.scale


def loss_fn(model, x, target):
    return nn.functional.mse_loss(model(x), target)


def make_inputs(batch):
    return torch.randn(batch, 6), torch.randn(batch, 5)


def export(optimizer, **options):
    torch.manual_seed(0)
    return export_training_step(Model, make_inputs, loss_fn, optimizer, "model", **options)


def updates(step) -> list[str]:
    return [op["op"] for op in step.graph["ops"] if op["phase"] == "update"]


def decayed(parameters):
    parameters = list(parameters)
    return AdamW([{"params": parameters[:2]}, {"params": parameters[2:], "weight_decay": 0.3}])


FUSED = {
    "sgd": (lambda p: SGD(p, lr=0.1, weight_decay=0.01), "_fused_sgd"),
    "nesterov": (lambda p: SGD(p, lr=0.1, momentum=0.9, nesterov=True), "_fused_sgd"),
    "maximize": (lambda p: SGD(p, lr=0.1, momentum=0.9, maximize=True), "_fused_sgd"),
    "adam": (lambda p: Adam(p, lr=0.01, weight_decay=0.1, betas=(0.8, 0.9)), "_fused_adam"),
    "amsgrad": (lambda p: Adam(p, lr=0.01, amsgrad=True), "_fused_adam"),
    "adamw": (lambda p: AdamW(p, lr=0.01), "_fused_adamw"),
    "decoupled": (lambda p: Adam(p, lr=0.01, decoupled_weight_decay=True), "_fused_adamw"),
    "groups": (decayed, "_fused_adamw"),
}


@pytest.mark.parametrize("name", FUSED)
def test_one_operator_a_parameter_that_computes_the_same(name):
    make, kernel = FUSED[name]
    step = export(make, double=True, check=True)
    assert updates(step) == [f"aten.{kernel}.tensor_lr"] * 4
    assert "equal to PyTorch" in step.checked


@pytest.mark.parametrize(
    "optimizer, options",
    [
        (RMSprop, {}),
        (lambda p: SGD(p, lr=0.1, momentum=0.9, dampening=0.5), {}),  # whose first step is another
        (AdamW, {"fused_update": False}),
        (AdamW, {"momentum_input": True}),  # kernels take it as a number
    ],
)
def test_others_are_written_out(optimizer, options):
    assert not any("fused" in op for op in updates(export(optimizer, **options)))


class Warmer(AdamW):
    """Who inherits may compute something else."""

    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad.mul_(0.5)
        super().step()


def test_a_class_of_a_users_own_is_read_from_its_step():
    step = export(Warmer, double=True, check=True)
    assert "equal to PyTorch" in step.checked
    assert any(op.startswith("aten.mul") for op in updates(step))


def test_a_rate_of_a_group_is_computed_once():
    def groups(parameters):
        parameters = list(parameters)
        return AdamW([{"params": parameters[:1]}, {"params": parameters[1:], "lr": 1e-4}], lr=1e-3)

    found = updates(export(groups, check=True))
    assert found.count("aten.mul.Tensor") == 1 and len(found) == 5


def test_a_step_that_overflows_is_left_out_by_the_kernel():
    step = export(AdamW, autocast="float16", loss_scaling={"init_scale": 8.0})
    found = [op for op in step.graph["ops"] if "fused" in op["op"]]
    assert len(found) == 4 and all("found_inf" in op["kwargs"] for op in found)
    assert not any(op["op"] == "aten.where.self" for op in found)
    torch.manual_seed(1)
    values = initial_values(step.graph, dict(Model().named_parameters()))
    x, target = make_inputs(8)
    for scale, left_out in ((1.0, False), (1e30, True)):
        given = dict(zip(("x", "target"), (x * scale, target), strict=True))
        _, following = run_step(step.graph, values, given, 8, lr=0.1, step=1)
        same = [
            torch.equal(values[t["name"]], following[t["name"]])
            for t in step.graph["tensors"]
            if t["role"] in ("parameter", "optimizer_state")
        ]
        assert all(same) if left_out else not any(same)
