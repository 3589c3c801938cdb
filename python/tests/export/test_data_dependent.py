"""Branches on random numbers, while a step is traced."""

import pytest
import torch
from support import Case, compare, export
from torch import nn
from torch.nn import functional as F

import heterog


class Layers(nn.Module):
    """Three layers, each left out where `skips(rate)` says so."""

    def __init__(self, rate: float, skips, same=False):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 6) for _ in range(3)])
        self.layerdrop = rate
        self.skips = skips
        self.same = same

    def forward(self, x):
        for layer in self.layers:
            if self.training and self.skips(self.layerdrop):
                x = layer(x) if self.same else x
            else:
                x = layer(x)
        return x


WAYS = {
    "of a tensor": lambda rate: torch.rand([]) < rate,
    "of a number": lambda rate: torch.rand(1).item() < rate,
    "the other way round": lambda rate: rate > torch.rand([]),
    "in place": lambda rate: torch.empty(1).uniform_() <= rate,
}


def case(*given) -> Case:
    return Case(
        lambda: Layers(*given),
        lambda batch: (torch.randn(batch, 6), torch.randn(batch, 6)),
        lambda model, x, y: F.mse_loss(model(x), y),
        options={"double": True},
    )


@pytest.mark.parametrize("way", WAYS)
def test_a_rate_of_zero_decides(way):
    graph = compare(case(0.0, WAYS[way]))
    assert sum("addmm" in op["op"] for op in graph["ops"]) == 3


@pytest.mark.parametrize("way", WAYS)
def test_other_operators_by_chance_are_refused(way):
    with pytest.raises(heterog.ExportError) as error:
        export(case(0.1, WAYS[way]))
    assert "a branch on a random number" in str(error.value)
    assert "set layerdrop of Layers (now 0.1) to 0" in str(error.value)
    assert "test_data_dependent.py" in str(error.value)


class Headed(Layers):
    """What is left when all layers are left out still trains."""

    def __init__(self, *given):
        super().__init__(*given)
        self.head = nn.Linear(6, 6)
        self.unused = nn.Linear(2, 2)

    def forward(self, x):
        return self.head(super().forward(x))


def test_parameters_that_train_by_chance_are_refused():
    headed = case()
    headed.model = lambda: Headed(0.1, WAYS["of a tensor"])
    with pytest.raises(heterog.ExportError, match="set layerdrop of Headed"):
        export(headed)


def test_parameters_that_never_train_decide_nothing():
    headed = case()
    headed.model = lambda: Headed(0.1, WAYS["of a tensor"], True)
    graph = export(headed)
    assert "unused.weight" not in [t["name"] for t in graph["tensors"] if t["role"] == "parameter"]


def test_a_branch_that_cannot_matter_is_taken():
    graph = compare(case(0.1, WAYS["of a tensor"], True))
    assert sum("addmm" in op["op"] for op in graph["ops"]) == 3


def test_other_numbers_by_chance_are_refused():
    class Adds(nn.Linear):
        def forward(self, x):
            return super().forward(x) + torch.tensor([1.0, 2.0] if torch.rand([]) < 0.5 else [3.0, 4.0])

    def vectors(batch):
        return torch.randn(batch, 6), torch.randn(batch, 2)

    with pytest.raises(heterog.ExportError, match="a branch on a random number"):
        export(Case(lambda: Adds(6, 2), vectors, lambda model, x, y: F.mse_loss(model(x), y)))


def reads(then) -> Case:
    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 6)

        def forward(self, x):
            return then(self.linear(x))

    return Case(
        Reads,
        lambda batch: (torch.randn(batch, 6), torch.randn(batch, 6)),
        lambda model, x, y: F.mse_loss(model(x), y),
        options={"double": True},
    )


def test_a_mask_that_the_model_makes_decides():
    def then(x):
        mask = torch.ones(x.shape[0], 3)
        return x if mask.all() and int(mask.sum()) == 3 * x.shape[0] else x.relu()

    assert not any("relu" in op["op"] for op in compare(reads(then))["ops"])


@pytest.mark.parametrize(
    "number",
    [lambda x: x.sum(), lambda x: torch.randn(3).sum(), lambda x: (torch.rand(2) + 1).max()],
    ids=["of data", "random", "made of random ones"],
)
def test_other_values_are_not_read(number):
    with pytest.raises(heterog.ExportError, match="reads the value of a tensor"):
        export(reads(lambda x: x if number(x) > 0 else -x))
