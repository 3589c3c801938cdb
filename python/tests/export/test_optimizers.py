"""Five steps of every optimizer equal eager torch.optim: neither rate nor step number is baked in."""

import pytest
import torch
from support import Case, compare_steps, export
from torch import nn
from torch.nn import functional as F

from heterog import ExportError
from heterog.export.graph.writer import write_graph

SGD, Adam, AdamW = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW


def regression(optimizer, **options) -> Case:
    def model():
        return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4))

    return Case(
        model,
        lambda batch: (torch.randn(batch, 6), torch.randn(batch, 4)),
        lambda model, x, y: F.mse_loss(model(x), y),
        optimizer,
        options,
    )


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (SGD, {}),
        (SGD, {"weight_decay": 0.1}),
        (SGD, {"momentum": 0.9}),
        (SGD, {"momentum": 0.9, "weight_decay": 0.1, "nesterov": True, "maximize": True}),
        (Adam, {}),
        (Adam, {"weight_decay": 0.1, "betas": (0.8, 0.9), "eps": 1e-3}),
        (Adam, {"amsgrad": True}),
        (AdamW, {}),
        (AdamW, {"weight_decay": 0.3, "amsgrad": True, "maximize": True}),
    ],
    ids=str,
)
def test_five_steps_equal_torch(kind, options):
    case = regression(lambda params: kind(params, lr=0.03, **options), double=True)
    graph = compare_steps(case)
    assert graph["optimizer"]["name"] == kind.__name__
    assert graph["optimizer"]["lr"] == 0.03
    settings = ("optimizer/lr", "optimizer/step")
    roles = [t["role"] for t in graph["tensors"] if t["name"] in settings]
    assert roles == ["input"] * (1 if kind is SGD else 2)


@pytest.mark.parametrize("kind", [SGD, Adam, AdamW])
def test_single_precision(kind):
    compare_steps(regression(lambda params: kind(params, lr=0.03)), tolerance=1e-6)


def test_a_rate_that_is_a_tensor(tmp_path):
    rate = torch.tensor(0.03, dtype=torch.float64)
    graph = compare_steps(regression(lambda params: Adam(params, lr=rate), double=True), steps=2)
    assert graph["optimizer"]["lr"] == 0.03
    write_graph(graph, tmp_path / "g.json.gz")


def test_groups_with_their_own_rates_and_decay():
    def optimizer(params):
        weights = [p for p in params if p.dim() > 1]
        rest = [p for p in params if p.dim() <= 1]
        return SGD(
            [
                {"params": weights, "weight_decay": 0.1},
                {"params": rest, "lr": 0.05, "momentum": 0.5},
            ],
            lr=0.1,
        )

    graph = compare_steps(regression(optimizer, double=True))
    states = [t["name"] for t in graph["tensors"] if t["role"] == "optimizer_state"]
    assert states == ["0.bias/momentum_buffer", "2.bias/momentum_buffer"]


def test_an_optimizer_that_exists_already():
    torch.manual_seed(3)
    model = nn.Linear(6, 4)
    optimizer = AdamW(model.parameters(), lr=0.01)
    case = regression(optimizer)
    case.model = model
    states = [t["name"] for t in export(case)["tensors"] if t["role"] == "optimizer_state"]
    assert states == [
        "weight/exp_avg",
        "weight/exp_avg_sq",
        "bias/exp_avg",
        "bias/exp_avg_sq",
    ]


@pytest.mark.parametrize("clip", [1e-3, 1e3], ids=["clipped", "not clipped"])
def test_clipping_by_global_norm(clip):
    case = regression(lambda params: SGD(params, lr=0.5, momentum=0.9), double=True, clip_norm=clip)
    graph = compare_steps(case, clip=clip)
    first = next(op for op in graph["ops"] if op["name"].startswith("clip/"))
    assert first["phase"] == "update"


def test_computations_on_the_rate_are_shared():
    graph = export(regression(lambda params: AdamW(params), fused_update=False))
    powers = [op["name"] for op in graph["ops"] if op["op"] == "aten.pow.Scalar"]
    assert len(powers) == 2 and all(name.startswith("update/") for name in powers)


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (lambda params: torch.optim.LBFGS(params), r"LBFGS: its step\(\) needs a closure"),
        (lambda params: torch.optim.SparseAdam(params), "SparseAdam is for sparse gradients"),
        (lambda params: params, "the function returned list, no torch.optim optimizer"),
        (lambda params: SGD(params[:1], lr=0.1), "parameter 0.bias is in no group"),
        (lambda params: SGD([torch.zeros(3)], lr=0.1), "that is no parameter of the model"),
        (lambda params: SGD(params, lr=-1), "making it stopped at ValueError: Invalid learning"),
        ("sgd", "neither a torch.optim optimizer nor a function"),
    ],
)
def test_optimizers_that_cannot_be_exported(optimizer, message):
    with pytest.raises(ExportError, match=message) as caught:
        export(regression(optimizer))
    assert "\n" not in str(caught.value)
