"""Strides that go through a whole tensor row by row are written as a view."""

import torch
from support import Case, compare, operators
from torch import nn
from torch.nn import functional as F


class Pooled(nn.Module):
    """Its pooling squeezes in place, of which autograd makes as_strided and as_strided_scatter."""

    def __init__(self):
        super().__init__()
        self.into = nn.Linear(6, 8)
        self.pool = nn.AdaptiveAvgPool1d(1)
        self.out = nn.Linear(8, 5)

    def forward(self, x):
        return self.out(torch.flatten(self.pool(self.into(x).transpose(1, 2)), 1))


class Overlapping(nn.Module):
    """Windows that share elements are no view of rows."""

    def __init__(self):
        super().__init__()
        self.into = nn.Linear(6, 5)

    def forward(self, x):
        return self.into(x + torch.as_strided(self.into.weight, (6,), (2,)))


def samples(*sizes):
    return lambda batch: (torch.randn(batch, *sizes), torch.randint(5, (batch,)))


def loss_fn(model, x, y):
    return F.cross_entropy(model(x), y)


def test_of_a_whole_tensor_nothing_is_left():
    found = operators(compare(Case(Pooled, samples(7, 6), loss_fn)))
    assert not any("strided" in name for name in found)


def test_others_stay():
    found = operators(compare(Case(Overlapping, samples(6), loss_fn)))
    assert {"aten.as_strided.default", "aten.as_strided_scatter.default"} <= found
