"""Large masks have no values while a step is traced, unless somebody asks for them."""

import pytest
import torch
from torch import nn

import heterog
from heterog.export.graph.writer import pack_graph
from heterog.export.operators import large_values

LENGTH = 8


class Masks(nn.Module):
    """Makes a mask of sizes, and asks for it."""

    def __init__(self, make, branch: bool = True):
        super().__init__()
        self.linear = nn.Linear(LENGTH, LENGTH)
        self.make = make
        self.branch = branch

    def forward(self, x):
        mask = self.make(x)
        h = self.linear(x)
        if self.branch:
            if bool(mask.all()) and mask.all():
                return h
        return torch.where(mask[:, 0], h, torch.zeros_like(h))


def ones(x):
    return torch.ones(LENGTH, LENGTH, dtype=torch.bool).expand(x.shape[0], LENGTH, LENGTH)


def causal(x):
    places = torch.arange(LENGTH)
    return (places[None] <= places[:, None]).expand(x.shape[0], LENGTH, LENGTH)


def written(x):
    mask = torch.zeros(x.shape[0], LENGTH, LENGTH)
    mask[:, 1:].fill_(1.0)
    mask[:, :1].add_(1.0)
    return mask == 1


def of_inputs(x):
    return x[:, None].expand(x.shape[0], LENGTH, LENGTH) > -1e9


def partly_of_inputs(x):
    mask = torch.ones(x.shape[0], LENGTH, LENGTH)
    mask[:, 0].copy_(x)
    return mask > -1e9


def random(x):
    return torch.rand(x.shape[0], LENGTH, LENGTH) < 2


def graph_of(make, branch: bool = True) -> bytes:
    torch.manual_seed(1)
    step = heterog.export_training_step(
        Masks(make, branch), lambda b: (torch.randn(b, LENGTH),), lambda m, x: m(x).sum(),
        lambda p: torch.optim.SGD(p, lr=0.1), "masks", check=False,
    )  # fmt: skip
    return pack_graph(step.graph)


@pytest.mark.parametrize("make", [ones, causal, written])
@pytest.mark.parametrize("branch", [True, False])
def test_the_step_is_the_same_with_values_and_without(make, branch, monkeypatch):
    monkeypatch.setattr(large_values, "LARGEST_WITH_VALUES", 1 << 40)
    expected = graph_of(make, branch)
    monkeypatch.setattr(large_values, "LARGEST_WITH_VALUES", 0)
    assert graph_of(make, branch) == expected


def test_nothing_large_is_computed(monkeypatch):
    """A mask of more bytes than any machine has."""

    def huge(x):
        return torch.ones(1, 1, dtype=torch.bool).expand(x.shape[0], LENGTH).repeat(1, 1 << 45)

    def make(x):
        many = torch.arange(1 << 10).expand(1 << 40, 1 << 10)
        return ones(x) | (many[:, :1].logical_not().sum() == 0)

    assert graph_of(make, branch=False)


@pytest.mark.parametrize("make", [of_inputs, partly_of_inputs, random])
def test_what_follows_from_inputs_or_chance_cannot_be_asked_for(make, monkeypatch):
    monkeypatch.setattr(large_values, "LARGEST_WITH_VALUES", 0)
    with pytest.raises(heterog.ExportError, match="reads the value of a tensor"):
        graph_of(make)
