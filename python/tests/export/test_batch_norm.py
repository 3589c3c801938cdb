"""Exact batch normalisation: the exported step equals eager PyTorch, and shows its sums."""

import importlib.util
from pathlib import Path

import pytest
import torch
from rounds import thorough
from support import (
    BATCH,
    Case,
    build,
    compare,
    compare_steps,
    export,
    given_values,
    inputs_of,
    operators,
)
from torch import nn
from torch.nn import functional as F

import heterog
from heterog.export.interpreter import run

ROOT = Path(__file__).resolve().parents[3]
EXACT = {"double": True, "batch_norm": "exact"}


class Block(nn.Module):
    """A linear map of `shape` before and after what is tested, so that gradients pass through it."""

    def __init__(self, norm, shape):
        super().__init__()
        self.before = nn.Linear(shape[-1], shape[-1])
        self.norm = norm
        self.after = nn.Linear(shape[-1], 3)

    def forward(self, x):
        return self.after(self.norm(self.before(x)).tanh())


def case(norm, shape, **options) -> Case:
    return Case(
        lambda: Block(norm(), shape),
        lambda batch: (torch.randn(batch, *shape) * 2 + 3,),
        lambda model, x: model(x).square().mean(),
        options=EXACT | options,
    )


CASES = {
    "vectors": case(lambda: nn.BatchNorm1d(5), (5,)),
    "sequences": case(lambda: nn.BatchNorm1d(4), (4, 5)),
    "images": case(lambda: nn.BatchNorm2d(4), (4, 3, 5)),
    "volumes": case(lambda: nn.BatchNorm3d(2), (2, 2, 3, 4)),
    "momentum and eps": case(lambda: nn.BatchNorm2d(4, momentum=0.4, eps=0.1), (4, 3, 5)),
    "no weights": case(lambda: nn.BatchNorm2d(4, affine=False), (4, 3, 5)),
    "no running statistics": case(
        lambda: nn.BatchNorm2d(4, track_running_stats=False), (4, 3, 5)
    ),
    "instances": case(lambda: nn.InstanceNorm2d(4, affine=True), (4, 3, 5)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_step_is_that_of_pytorch(name):
    graph = compare(CASES[name])
    assert not any("norm" in operator for operator in operators(graph))


@pytest.mark.parametrize("name", ["sequences", "images"])
def test_running_statistics_follow_over_several_steps(name):
    compare_steps(CASES[name])


def test_a_large_offset_costs_few_digits():
    """The mean of squares minus the square of the mean would keep 2 of 16 digits here."""
    compare(
        Case(
            lambda: nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 3)),
            lambda batch: (torch.randn(batch, 5) + 1e7,),
            lambda model, x: model(x).square().mean(),
            options=EXACT,
        ),
        tolerance=1e-7,
    )


def test_statistics_that_do_not_follow_the_batch_are_numbers_like_others():
    class Frozen(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(5, 5)
            self.register_buffer("mean", torch.zeros(5))
            self.register_buffer("var", torch.ones(5))

        def forward(self, x):
            return F.batch_norm(self.linear(x), self.mean, self.var, training=False)

    frozen = Case(
        Frozen,
        lambda batch: (torch.randn(batch, 5),),
        lambda model, x: model(x).square().mean(),
        options=EXACT,
    )
    assert not any("batch_norm" in operator for operator in operators(compare(frozen)))


def test_mixed_precision_keeps_statistics_in_float32():
    options = {"double": False, "autocast": "bfloat16"}
    losses = []
    for batch_norm in ("exact", "per-slice"):
        images = case(lambda: nn.BatchNorm2d(4), (4, 3, 5), batch_norm=batch_norm, **options)
        graph = export(images)
        tensors = run(graph, given_values(graph, build(images), inputs_of(graph, images)), BATCH)
        losses.append(tensors[graph["loss"]].item())
        for op in graph["ops"]:
            if op["op"] == "aten.lerp.Scalar":
                dtypes = [graph["tensors"][int(a[1:])]["dtype"] for a in op["args"][:2]]
                assert dtypes == ["float32", "float32"]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)  # bfloat16 keeps 8 bits


def test_counts_are_those_of_the_whole_batch():
    graph = export(CASES["images"])
    divisors = {op["args"][1] for op in graph["ops"] if op["op"] == "aten.div.Tensor"}
    assert {"$15B", "$15B-1"} <= divisors


def test_per_slice_is_the_default_and_others_are_refused():
    images = case(lambda: nn.BatchNorm2d(4), (4, 3, 5))
    del images.options["batch_norm"]
    assert "aten.native_batch_norm_backward.default" in operators(export(images))
    with pytest.raises(heterog.ExportError, match="batch_norm: 'sync'"):
        export(case(lambda: nn.BatchNorm2d(4), (4, 3, 5), batch_norm="sync"))


SCRIPT = ROOT / "scripts" / "export_test_graphs.py"
spec = importlib.util.spec_from_file_location("export_test_graphs", SCRIPT)
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)


@pytest.mark.parametrize(
    "name",
    thorough(script.GRAPHS, but={"exact_batch_norm", "mlp_clipped", "transformer_tied", "masters_bfloat16", "lstm"}),
)
def test_a_graph_of_the_c_tests_is_that_of_this_exporter(name, tmp_path):
    made = tmp_path / f"{name}.json.gz"
    script.export(name).save(made)
    assert made.read_bytes() == (script.FOLDER / f"{name}.json.gz").read_bytes(), f"run scripts/{SCRIPT.name}"
