"""Numbers that depend on the batch size: fitted from their values at the traced batch sizes."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Affine:
    """a·B + c, B the number of samples; integers for sizes, floats allowed in arithmetic."""

    a: int | float
    c: int | float

    def at(self, batch: int):
        return self.a * batch + self.c

    def text(self) -> str:
        head = "B" if self.a == 1 and isinstance(self.a, int) else f"{self.a!r}B"
        if self.c == 0:
            return head
        return f"{head}{'+' if self.c > 0 else ''}{self.c!r}"


@dataclass(frozen=True)
class Reciprocal:
    """k / (a·B + c)."""

    k: int | float
    over: Affine

    def at(self, batch: int):
        return self.k / self.over.at(batch)

    def text(self) -> str:
        return f"{self.k!r}/{self.over.text()}"


@dataclass(frozen=True)
class Product:
    """Numbers whose product is one number: of a mean over pairs, k / B and 1 / (B - 1)."""

    factors: tuple[int | float | Affine | Reciprocal, ...]

    def at(self, batch: int):
        values = [f.at(batch) if isinstance(f, (Affine, Reciprocal)) else f for f in self.factors]
        return math.prod(values)


def fit_size(batches: tuple, values: list) -> int | Affine | None:
    """An integer, or a·B + c with integers a and c; None if no such line goes through all values."""
    if all(value == values[0] for value in values):
        return values[0]
    slope, rest = divmod(values[1] - values[0], batches[1] - batches[0])
    if rest:
        return None
    fitted = Affine(slope, values[0] - slope * batches[0])
    return fitted if [fitted.at(b) for b in batches] == list(values) else None


def fit_scalar(batches: tuple, values: list) -> int | float | Affine | Reciprocal | None:
    """A number, a·B + c, or k / (a·B + c); None if none of them gives all values."""
    if all(value == values[0] for value in values):
        return values[0]
    if all(isinstance(value, int) for value in values):
        exact = fit_size(batches, values)
        if exact is not None:
            return exact
    line = _float_line(batches, [float(value) for value in values])
    if line is not None:
        return line
    if any(value == 0 for value in values):
        return None
    inverse = _float_line(batches, [1.0 / value for value in values])
    return None if inverse is None else _as_reciprocal(batches, values, inverse)


# The sizes that one sum over pairs is divided by: B, or B - 1 where none is paired with itself.
_PAIRED = (Affine(1, 0), Affine(1, -1))


def fit_product(batches: tuple, values: list) -> Product | None:
    """A number of `fit_scalar` times B or B - 1, or divided by one of them; None if none is."""
    for size in _PAIRED:
        sizes = [size.at(batch) for batch in batches]
        if 0 in sizes:
            continue
        whole = all(isinstance(v, int) and v % s == 0 for v, s in zip(values, sizes, strict=True))
        rest = [v // s if whole else v / s for v, s in zip(values, sizes, strict=True)]
        other = fit_scalar(batches, rest)
        if other is not None:
            return Product((other, size))
        if all(isinstance(value, int) for value in values):
            continue
        other = fit_scalar(batches, [v * s for v, s in zip(values, sizes, strict=True)])
        if other is not None:
            return Product((other, Reciprocal(1, size)))
    return None


# The largest a of k / (a·B + c), where none follows from sizes: B - 1.5 is (2B - 3) / 2.
_MOST_OVER = 64
# Values come from a few roundings in double precision.
_TOLERANCE = 1e-12


def _near(x: float, y: float) -> bool:
    return abs(x - y) <= _TOLERANCE * max(abs(x), abs(y))


def _rounded(value: float) -> float:
    """The same number without the last digits, where those are the noise of the fit."""
    return float(f"{value:.11g}")


def _float_line(batches, values) -> Affine | None:
    slope = (values[-1] - values[0]) / (batches[-1] - batches[0])
    constant = values[0] - slope * batches[0]
    if abs(constant) < 1e-11 * max(abs(value) for value in values):
        constant = 0.0
    for candidate in (Affine(_rounded(slope), _rounded(constant)), Affine(slope, constant)):
        if all(_near(candidate.at(b), v) for b, v in zip(batches, values, strict=True)):
            return candidate
    return None


def _as_reciprocal(batches, values, inverse: Affine) -> Reciprocal | None:
    """k / (a·B + c) with whole a and c, from a line through the inverses."""
    scale = 1.0 / inverse.a
    shift = inverse.c * scale
    candidates = []
    whole = (round(inverse.a), round(inverse.c))  # sizes stay far below 2^40 elements
    if max(map(abs, whole)) < 1 << 40:
        candidates.append(Reciprocal(1, Affine(*whole)))
    for a in range(1, _MOST_OVER + 1):
        for k in (_rounded(a * scale), a * scale):
            k_number = int(k) if k == int(k) else k
            candidates.append(Reciprocal(k_number, Affine(a, round(a * shift))))
    for candidate in candidates:
        if candidate.over.a == 0 or any(candidate.over.at(b) == 0 for b in batches):
            continue
        if all(_near(candidate.at(b), v) for b, v in zip(batches, values, strict=True)):
            return candidate
    return None
