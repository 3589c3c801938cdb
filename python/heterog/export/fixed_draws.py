"""Numbers in place of random ones, the same in eager PyTorch and in an exported graph.

They follow from an element's place, and are fractions that every type of float holds exactly.
"""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from heterog.export.interpreter import operator_of
from heterog.export.operators.draws import BY_COUNTER, is_random, past_largest

_aten = torch.ops.aten


def _places(like: torch.Tensor) -> torch.Tensor:
    """0 … 60 in an order without a pattern that operators could follow."""
    return (torch.arange(like.numel()) * 37 % 61).reshape(like.shape)


def _uniform(like):
    return (_places(like) + 1).double() / 64


def _normal(like):
    return (_places(like) - 30).double() / 16


def _integers(like, low, high):
    return low + _places(like) % (high - low)


def _choices(like, categories):
    """Each row begins at its own, and takes those that follow."""
    return (_places(like)[..., :1] + torch.arange(like.shape[-1])) % categories


def _affine(values, factor, shift):
    return values * factor + shift


class _Fixed:
    """What operators make of these numbers. `keep`: dropout keeps every element; False: it does not
    drop any, and does not scale them either."""

    def __init__(self, keep: bool):
        self.keep = keep

    def call(self, operator, args, kwargs):
        given = _given(operator, args, kwargs)
        packet = _packet(operator)
        if packet == "native_dropout":
            return self._dropout(**given)
        if packet.startswith("rrelu_with_noise"):
            return self._rrelu(operator, args, kwargs, given)
        like = operator(*args, **kwargs)  # of the right form, whatever it holds
        return like.copy_(self._values(packet, like, given))

    def _values(self, packet, like, given):
        number = given.get
        match packet:
            case "bernoulli":
                p = number("p", number("self"))
                return torch.ones_like(like) if self.keep else torch.as_tensor(p).expand(like.shape)
            case "rand" | "rand_like":
                return _uniform(like)
            case "uniform":
                return _affine(_uniform(like), number("to") - number("from"), number("from"))
            case "randn" | "randn_like":
                return _normal(like)
            case "normal" | "normal_functional":
                return _affine(_normal(like), number("std"), number("mean"))
            case "log_normal":
                return _affine(_normal(like), number("std"), number("mean")).exp()
            case "cauchy":
                return _affine(_normal(like), number("sigma"), number("median"))
            case "exponential":
                return _uniform(like) * 4 / number("lambd")
            case "geometric":
                return _integers(like, 1, 6)
            case "randint" | "randint_like" | "random":
                return _integers(like, *_bounds(like, given))
            case "randperm":
                return torch.arange(like.numel()).flip(0)
            case "multinomial":
                return _choices(like, number("self").shape[-1])
        raise NotImplementedError(packet)

    def _dropout(self, input, p, train):
        kept = torch.ones_like(input, dtype=torch.bool)
        if not train or p == 0 or not self.keep:
            return input.clone(), kept
        if p == 1:
            return torch.zeros_like(input), ~kept
        return input * (1 / (1 - p)), kept

    def _rrelu(self, operator, args, kwargs, given):
        if not given["training"]:
            return operator(*args, **kwargs)
        x, noise, low, high = (given[name] for name in ("self", "noise", "lower", "upper"))
        slope = torch.where(x <= 0, _affine(_uniform(x), high - low, low).to(x.dtype), 1.0)
        if operator is _aten.rrelu_with_noise_functional.default:
            return x * slope, slope
        noise.copy_(slope)
        return x.mul_(slope) if operator._schema.name.endswith("_") else x * slope


def _packet(operator) -> str:
    return operator._schema.name.removeprefix("aten::").rstrip("_")


# Those of a graph, and those that write in place beside them.
_PACKETS = {_packet(operator_of(name)) for name in BY_COUNTER} | {"random", "rrelu_with_noise"}


def _given(operator, args, kwargs) -> dict:
    formal = operator._schema.arguments
    given = {a.name: a.default_value for a in formal if a.has_default_value()}
    given.update(zip((a.name for a in formal), args))
    return given | kwargs


def _bounds(like, given):
    """randint names `low` and `high`, random_ `from` and `to`."""
    low, high = given.get("low", given.get("from")), given.get("high", given.get("to"))
    return low or 0, past_largest(like.dtype) if high is None else high


class FixedDraws(TorchDispatchMode):
    """Eager operators, those that write in place too, get these numbers."""

    def __init__(self, keep: bool):
        super().__init__()
        self._fixed = _Fixed(keep)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if is_random(func) and _packet(func) in _PACKETS:
            return self._fixed.call(func, args, kwargs)
        return func(*args, **kwargs)


def fixed_operators(keep: bool) -> dict:
    """The operators of a graph that draw, by name, with these numbers: `instead` of the
    interpreter."""
    fixed = _Fixed(keep)

    def of(name):
        operator = operator_of(name)
        return lambda *args, **kwargs: fixed.call(operator, args, kwargs)

    return {name: of(name) for name in BY_COUNTER}
