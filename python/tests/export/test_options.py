"""Dropout on and off, bfloat16 autocast, double precision, building without weights."""

import pytest
import torch
from support import BATCH, Case, compare, compare_narrow, export, given_values, inputs_of, operators
from torch import nn
from torch.nn import functional as F

from heterog import ExportError
from heterog.export.interpreter import run


class Drops(nn.Module):
    """Applies a given mask where one is set, else dropout: the eager twin of an exported mask."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 5)
        self.second = nn.Linear(5, 4)
        self.mask = None

    def forward(self, x):
        x = self.first(x)
        if self.mask is None:
            x = F.dropout(x, 0.4, self.training)
        else:
            x = x * self.mask / 0.6
        return self.second(x)


def vectors(batch):
    return torch.randn(batch, 6), torch.randn(batch, 4)


def squares(model, x, y):
    return F.mse_loss(model(x), y)


def test_dropout_is_one_random_operator_whose_mask_serves_backward():
    case = Case(Drops, vectors, squares, options={"double": True})
    graph = export(case)
    drop = next(op for op in graph["ops"] if op["op"] == "aten.native_dropout.default")
    inputs = inputs_of(graph, case)
    torch.manual_seed(3)
    model = Drops().double()
    tensors = run(graph, given_values(graph, model, inputs), BATCH)
    mask = tensors[drop["outputs"][1]]
    assert 0 < mask.sum() < mask.numel()
    model.mask = mask
    loss = squares(model, *inputs.values())
    loss.backward()
    assert torch.allclose(tensors[graph["loss"]], loss, rtol=1e-12)
    gradients = {t["of"]: i for i, t in enumerate(graph["tensors"]) if t["role"] == "gradient"}
    for parameter, gradient in gradients.items():
        name = graph["tensors"][parameter]["name"]
        expected = model.get_parameter(name).grad
        assert torch.allclose(tensors[gradient], expected, rtol=1e-12)


def test_dropout_off_leaves_nothing_random():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.recurrent = nn.LSTM(6, 4, num_layers=2, dropout=0.5)
            self.drop = nn.Dropout(0.5)
            self.channels = nn.Dropout2d(0.5)

        def forward(self, x):
            x = self.drop(self.recurrent(x[None])[0])
            return self.channels(F.dropout(x, 0.3, self.training)[None])[0, 0]

    case = Case(Model, vectors, squares, options={"double": True, "dropout": False})
    graph = export(case)
    for name in operators(graph):
        packet, overload = name.split(".")[1:]
        tags = getattr(getattr(torch.ops.aten, packet), overload).tags
        assert torch.Tag.nondeterministic_seeded not in tags, name
    assert "aten.bernoulli.p" in operators(export(Case(Model, vectors, squares)))


@pytest.mark.parametrize("kind", ["words", "images"])
def test_autocast_to_bfloat16(kind):
    def words():
        return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 4))

    def images():
        return nn.Sequential(
            nn.Unflatten(1, (6, 1, 1)),
            nn.Conv2d(6, 8, 1),
            nn.BatchNorm2d(8),
            nn.Flatten(),
            nn.Linear(8, 4),
            nn.Softmax(1),
        )

    model = {"words": words, "images": images}[kind]
    case = Case(model, vectors, squares, options={"autocast": "bfloat16"})
    graph = compare_narrow(case, 1e-2, 5e-2, 5e-3)
    dtypes = {t["dtype"] for t in graph["tensors"]}
    assert {"bfloat16", "float32"} <= dtypes
    assert all(t["dtype"] == "float32" for t in graph["tensors"] if t["role"] == "parameter")
    kept = {"native_layer_norm", "_softmax"}
    for op in graph["ops"]:
        if op["op"].split(".")[1] in kept:
            assert graph["tensors"][op["outputs"][0]]["dtype"] == "float32", op
        if op["op"] in ("aten.addmm.default", "aten.convolution.default"):
            assert graph["tensors"][op["outputs"][0]]["dtype"] == "bfloat16", op


def test_double_precision_has_no_single_precision_left():
    case = Case(lambda: nn.Linear(6, 4), vectors, squares, options={"double": True})
    graph = compare(case)
    assert graph["dtype"] == "float64"
    assert not any(t["dtype"] == "float32" for t in graph["tensors"])


def test_a_large_model_takes_no_memory():
    # 40 GB of weights: building them would not survive on most machines.
    class Large(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(100_000, 100_000)
            self.rates = [r.item() for r in torch.linspace(0, 0.5, 3)]
            nn.init.trunc_normal_(self.first.weight, std=0.02)
            self.first.bias.data.zero_()
            self.register_buffer("mean", torch.ones(4))

        def forward(self, x):
            return self.first(x).mean() * self.rates[2] * self.mean.sum()

    case = Case(Large, lambda b: (torch.randn(b, 100_000),), lambda model, x: model(x))
    graph = export(case)
    weight = next(t for t in graph["tensors"] if t["name"] == "first.weight")
    assert weight["shape"] == [100_000, 100_000]
    mean = next(t for t in graph["tensors"] if t["name"] == "mean")
    assert mean["values"] == {"fill": 1.0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batches": (4, 6)}, "three different batch sizes"),
        ({"batches": (1, 4, 6)}, "2 or more"),
        ({"autocast": "float8"}, "'float8' is not known"),
        ({"autocast": "bfloat16", "double": True}, "exclude each other"),
        ({"clip_norm": 0.0}, "give a norm above 0"),
    ],
)
def test_options_that_make_no_sense(options, message):
    with pytest.raises(ExportError, match=message):
        export(Case(lambda: nn.Linear(6, 4), vectors, squares, options=options))


def test_tf32_is_as_pytorch_is_set():
    case = Case(Drops(), lambda b: (torch.randn(b, 6),), lambda m, x: m(x).mean())
    usual = export(case)
    assert "tf32" not in usual
    torch.set_float32_matmul_precision("high")
    try:
        faster = export(case)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert faster["tf32"] == ["products", "convolutions"]
    assert faster["ops"] == usual["ops"]
