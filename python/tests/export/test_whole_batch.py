"""Layers and losses that PyTorch alone would ask for numbers, or slice by slice train otherwise."""

import os
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import heterog
from heterog import ExportError


def vectors(batch):
    return torch.randn(batch, 6), torch.randn(batch, 4)


def squares(model, x, y):
    return F.mse_loss(model(x), y)


def normalised(layer):
    return lambda: nn.Sequential(nn.Linear(6, 4), layer)


def exported(model, loss=squares, **options) -> heterog.TrainingStep:
    return heterog.export_training_step(
        model, vectors, loss, lambda p: torch.optim.SGD(p, lr=0.1), "case", **options
    )


def test_synchronised_batch_normalisation_takes_the_whole_batch():
    step = exported(normalised(nn.SyncBatchNorm(4)))
    assert not [op for op in step.graph["ops"] if "batch_norm" in op["op"]]
    assert step.checked.startswith("equal to PyTorch")
    in_slices = exported(normalised(nn.BatchNorm1d(4))).graph
    assert [op for op in in_slices["ops"] if "batch_norm" in op["op"]]
    # In eval mode it normalises by what it has: nothing to say.
    frozen = nn.Sequential(nn.Linear(6, 4), nn.SyncBatchNorm(4).eval(), nn.BatchNorm1d(4))
    assert [op for op in exported(frozen).graph["ops"] if "batch_norm" in op["op"]]


def test_statistics_averaged_over_all_steps():
    layer = normalised(nn.BatchNorm1d(4, momentum=None))
    step = exported(layer, batch_norm="exact")
    assert step.checked == "equal to PyTorch at batches 5 and 6, in float64"
    with pytest.raises(ExportError, match="momentum=None.* give batch_norm='exact'"):
        exported(layer)


def test_a_variance_that_is_asked_whether_it_is_negative():
    for reduction, full in (("mean", False), ("sum", True)):
        loss = lambda model, x, y: F.gaussian_nll_loss(  # noqa: E731
            model(x), y, model(x).exp(), full=full, reduction=reduction
        )
        assert exported(nn.Linear(6, 4), loss).checked.startswith("equal to PyTorch")
    module = nn.GaussianNLLLoss()
    loss = lambda model, x, y: module(model(x), y, model(x)[:, :1].exp())  # noqa: E731
    assert exported(nn.Linear(6, 4), loss).checked.startswith("equal to PyTorch")


def test_where_a_model_stops_one_line_says_so():
    """PyTorch logs its own frames, hundreds of lines, at every operator that refuses its operands."""
    program = (
        "import heterog, torch\n"
        "from torch import nn\n"
        "try:\n"
        "    heterog.export_training_step(nn.Sequential(nn.Linear(6, 4), nn.Linear(5, 4)),\n"
        "        lambda batch: (torch.randn(batch, 6),), lambda model, x: model(x).sum(),\n"
        "        lambda p: torch.optim.SGD(p, lr=0.1), 'case')\n"
        "except heterog.HeterogError as error:\n"
        "    print(error)\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True,
        env={**os.environ, "HETEROG_QUIET": "1"},
    )  # fmt: skip
    assert len(found.stdout.splitlines()) == 1 and "in module 1 (Linear)" in found.stdout
    assert found.stderr == ""
