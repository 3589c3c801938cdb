"""What a model asks of its data only to stop where that is wrong does not keep it from exporting."""

import pytest
import torch
from support import Case, compare, export
from torch import nn
from torch.nn import functional as F

from heterog import ExportError
from heterog.export.tracing.assertions import MOST_QUESTIONS


class Net(nn.Module):
    def __init__(self, check):
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.check = check

    def forward(self, x):
        return self.check(self.linear(x), x)


def case(check) -> Case:
    return Case(
        lambda: Net(check),
        lambda batch: (torch.rand(batch, 6), torch.randn(batch, 6)),
        lambda model, x, y: F.mse_loss(model(x), y),
        options={"double": True},
    )


def asserts_all(h, x):
    assert torch.all(x >= 0).item(), "negative"
    return h


def asserts_most(h, x):
    assert x.max().item() <= 1
    assert 0 <= x.min().item(), f"{x.min().item()} is too small"
    return h


def raises(h, x):
    if x.max() > 1:
        raise ValueError(f"{x.max().item()} of {x.shape}")
    return h.relu()


def raises_after_some_work(h, x):
    wrong = (x < 0).any()
    h = h * 2
    if wrong:
        raise RuntimeError("negative")
    return h


def equal(h, x):
    assert torch.equal(x, x.abs())
    return h


def runs_the_same(h, x):
    return h * 2 if x.sum() > 3 else h * 2


@pytest.mark.parametrize(
    "check",
    [asserts_all, asserts_most, raises, raises_after_some_work, equal, runs_the_same],
)
def test_the_way_that_goes_on_is_taken(check):
    compare(case(check))


def branches(h, x):
    return h * 2 if x.sum() > 3 else h


def branches_beside_an_assertion(h, x):
    assert x.max() <= 1
    return h.sin() if x.min().item() > 0.5 else h.cos()


def branches_where_both_are_false(h, x):
    return h * 2 if x.max() > 1 or x.min() < 0 else h


def branches_after_another_question(h, x):
    if x.max() > 1:
        return h
    return h if x.min() < 0 else h * 2


def adds_other_numbers(h, x):
    return h + torch.tensor([1.0] * 5 + [2.0] if x.max() > 1 else [1.0] * 6)


def computes(h, x):
    return h * x.max().item()


def computes_after_an_assertion(h, x):
    largest = x.max().item()
    assert largest <= 1
    return h / (largest + 1)


def makes(h, x):
    return h + torch.full((6,), x.max().item())


def counts(h, x):
    for row in range(MOST_QUESTIONS + 1):
        assert x[row % 2].max() <= 1
    return h


def never_goes_on(h, x):
    if x.max() > 1:
        raise ValueError("too large")
    raise ValueError("too small")


@pytest.mark.parametrize(
    "check",
    [branches, branches_beside_an_assertion, branches_where_both_are_false,
     branches_after_another_question, adds_other_numbers, computes, computes_after_an_assertion, makes, counts],
)
def test_what_data_decides_or_enters_is_refused(check):
    with pytest.raises(ExportError) as error:
        export(case(check))
    assert "the step reads the value of a tensor" in str(error.value)
    assert "test_assertions.py" in str(error.value)


def test_a_model_that_refuses_all_data_says_so_itself():
    with pytest.raises(ExportError) as error:
        export(case(never_goes_on))
    assert "ValueError: too small" in str(error.value)
