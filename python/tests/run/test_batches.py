"""What a model decides by its batch is refused, or the graph says from which batch on it holds."""

import pytest
import torch
from support import Case, compare, export
from torch import nn
from torch.nn import functional as F

from heterog import ExportError
from heterog.export.graph.samples import default_batches


class Net(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.linear = nn.Linear(6, 4)
        self.function = function

    def forward(self, x):
        return self.function(self.linear(x))


def vectors(batch):
    return torch.randn(batch, 6), torch.randn(batch, 4)


def squares(model, x, y):
    return F.mse_loss(model(x), y)


def case(function, **options) -> Case:
    return Case(lambda: Net(function), vectors, squares, options={"double": True} | options)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * (x.shape[0] % 2),
        lambda x: x * (1 + x.shape[0] % 3),
        lambda x: x * min(x.shape[0], 12),
        lambda x: x.sin() if x.shape[0] % 2 else x.cos(),
        lambda x: x.sin() if x.shape[0] > 32 else x.cos(),
        lambda x: x / max(8, x.shape[0]),
        lambda x: x * (x.shape[0] // 2),
        lambda x: x * x.shape[0].bit_length(),
    ],
)
def test_a_branch_on_the_batch_is_refused(function):
    with pytest.raises(ExportError, match="batch"):
        export(case(function, check=False))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * min(x.shape[0], 3),
        lambda x: x.sin() if x.shape[0] >= 4 else x.cos(),
        lambda x: x + x[1:].mean(0) * (x[1:].sum() / x[1:].expand(x.shape[0] - 1, 4).sum()),
    ],
)
def test_where_small_batches_differ_the_graph_holds_from_four_on(function):
    assert compare(case(function))["traced_batches"] == [4, 5, 64]


def test_a_graph_says_at_which_batches_it_was_traced():
    assert compare(case(torch.relu))["traced_batches"] == [2, 3, 64]
    assert export(case(torch.relu, batch=48))["traced_batches"] == [2, 3, 48]
    assert export(case(torch.relu, batches=(8, 9, 20)))["traced_batches"] == [8, 9, 20]
    assert default_batches(2) == [(2, 3, 64), (4, 5, 64)]
    assert default_batches(4) == [(2, 3, 4), (4, 5, 64)]


def test_a_branch_below_the_batch_of_the_run_is_no_matter():
    graph = export(case(lambda x: x * min(x.shape[0], 48), batch=48))
    assert graph["traced_batches"] == [2, 3, 48]


def test_what_lies_between_the_traced_batches_is_left_out():
    assert export(case(lambda x: x * 2 if x.shape[0] == 5 else x))["holds"] == [[2, 4], [6, None]]


def test_convolutions_lie_alike_in_memory_at_every_batch():
    """From batch 16 on PyTorch's CPU would take NNPACK, which leaves gradients in another order."""

    class Permuted(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Conv2d(3, 8, 2, 2)
            self.mix = nn.Linear(8, 8)
            self.out = nn.Conv2d(8, 4, 3, padding=1)

        def forward(self, x):
            x = self.mix(self.stem(x).permute(0, 2, 3, 1))
            return self.out(x.permute(0, 3, 1, 2))

    def images(batch):
        return (torch.randn(batch, 3, 8, 8),)

    def mean_square(model, x):
        return model(x).square().mean()

    graph = export(Case(Permuted, images, mean_square))
    assert graph["traced_batches"] == [2, 3, 64]
