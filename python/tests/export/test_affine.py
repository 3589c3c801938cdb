"""Numbers that depend on the batch: fitting, writing and reading them back."""

import pytest

from heterog.export.graph.affine import Product, fit_product, fit_scalar, fit_size
from heterog.export.interpreter import evaluate

BATCHES = (4, 6, 10)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda b: 3 * b, "3B"),
        (lambda b: b, "B"),
        (lambda b: 4 * b + 1, "4B+1"),
        (lambda b: b - 1, "B-1"),
        (lambda b: 7 - b, "-1B+7"),
    ],
)
def test_sizes(function, text):
    fitted = fit_size(BATCHES, [function(b) for b in BATCHES])
    assert fitted.text() == text
    assert evaluate(text, 7) == function(7) and isinstance(evaluate(text, 7), int)


@pytest.mark.parametrize("function", [lambda b: b * b, lambda b: b // 4, lambda b: 2 ** (b // 2)])
def test_sizes_that_are_not_affine(function):
    assert fit_size(BATCHES, [function(b) for b in BATCHES]) is None


def test_a_size_that_does_not_depend_on_the_batch():
    assert fit_size(BATCHES, [5, 5, 5]) == 5


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda b: 1024 * b, "1024B"),
        (lambda b: 0.1 * b, "0.1B"),
        (lambda b: 0.5 * b + 0.25, "0.5B+0.25"),
        (lambda b: 1 / (4 * b), "1/4B"),
        (lambda b: 2 / (4 * b), "1/2B"),
        (lambda b: 0.1 / b, "1/10B"),
        (lambda b: 1 / (3 * b - 1), "1/3B-1"),
        (lambda b: 0.3 / (b + 2), "0.3/B+2"),
        (lambda b: 3e-13 / b, "3e-13/B"),
        (lambda b: 2 / (6 * b - 1), "2/6B-1"),
        (lambda b: 2 / (b - 1.5), "4/2B-3"),
        (lambda b: 0.3 / (b + 0.25), "1.2/4B+1"),
    ],
)
def test_scalars(function, text):
    fitted = fit_scalar(BATCHES, [function(b) for b in BATCHES])
    assert fitted.text() == text
    assert evaluate(text, 7) == pytest.approx(function(7), rel=1e-15)
    assert evaluate(fitted.text(), 131) == pytest.approx(function(131), rel=1e-14)


@pytest.mark.parametrize("function", [lambda b: b**0.5, lambda b: 1 / (b * b), lambda b: b**3.0])
def test_scalars_of_other_forms(function):
    assert fit_scalar(BATCHES, [function(b) for b in BATCHES]) is None


@pytest.mark.parametrize(
    "function",
    [
        lambda b: b * b,
        lambda b: 3 * b * (b - 1),
        lambda b: b * (2 * b + 5),
        lambda b: (b - 1) ** 2,
        lambda b: 1 / (b * b),
        lambda b: 0.1 / (b * (b - 1)),
        lambda b: 2 / (b - 1) ** 2,
        lambda b: (b - 1) / b,
    ],
)
def test_products(function):
    """What sums over pairs are divided by: whole where the number is, and the same elsewhere."""
    values = [function(b) for b in BATCHES]
    fitted = fit_product(BATCHES, values)
    assert isinstance(fitted, Product)
    for batch in (2, 7, 131):
        assert fitted.at(batch) == pytest.approx(function(batch), rel=1e-14)
        assert isinstance(fitted.at(batch), int) == isinstance(values[0], int)


@pytest.mark.parametrize(
    "function", [lambda b: b**3, lambda b: b**0.5, lambda b: min(b, 6) * b, lambda b: 1 / b**3]
)
def test_numbers_that_are_no_products(function):
    assert fit_product(BATCHES, [function(b) for b in BATCHES]) is None
