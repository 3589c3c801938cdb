"""Numbers that an optimizer computes with in Python (its learning rate, the count of its steps, what
it reads by .item()), kept as tensors without dimensions while its step is traced."""

import builtins
import contextlib
import math
import operator

import torch
from torch.overrides import TorchFunctionMode

# More ways through one step than this are no branches of a formula any more.
_MOST_WAYS = 64
# What an operation leaves as it is: x + 0, x * 1.
_NEUTRAL = {"add": 0, "sub": 0, "mul": 1, "truediv": 1, "pow": 1}


class ReadsValue(Exception):
    """A Python number is asked for where there is a tensor; the text says by what."""


class Known:
    """The value that a setting has while it is traced, and what was decided by it."""

    def __init__(self, value: float, answers: list[list] | None = None):
        self.value = value
        # Name of the comparison, what with, and what it said.
        self.answers: list[list] = list(answers or [])

    def decide(self, compare, other) -> bool:
        answer = bool(compare(self.value, other))
        self.answers.append([compare.__name__, other, answer])
        return answer

    def holds(self, value: float) -> bool:
        """Whether another value would have been treated alike."""
        return all(bool(getattr(operator, how)(value, other)) == said for how, other, said in self.answers)


class Number(torch.SymFloat):
    """A Python float as far as Python sees: it cannot be changed in place, and promotes no tensor.
    PyTorch takes a SymFloat wherever it takes a float; Numbers rewrites each call that is given one.
    """

    def __init__(self, tensor: torch.Tensor, sign: int = 1, known: Known | None = None):
        self._tensor = tensor  # float64, without dimensions
        self.sign = sign  # kept apart: x - lr * g is one operator that has a sign already
        self.known = known

    @property
    def tensor(self) -> torch.Tensor:
        return self._tensor if self.sign == 1 else -self._tensor

    @property
    def magnitude(self) -> "Number":
        return Number(self._tensor)

    def fitting(self, like: torch.Tensor | None, same: bool = False) -> torch.Tensor:
        """As an operand beside `like`, whose dtype the result keeps. `same`: in that dtype."""
        value = self.tensor
        if like is None or like.dtype == value.dtype:
            return value
        if not like.is_floating_point():
            return value.to(torch.get_default_dtype())
        return value.to(like.dtype) if same or like.dim() == 0 else value

    def __neg__(self):
        return Number(self._tensor, -self.sign)

    def __pos__(self):
        return self

    def __abs__(self):
        return Number(self._tensor.abs())

    def __bool__(self):
        return self != 0 if self.known else decide(self._tensor != 0)

    def __hash__(self):
        return id(self)

    def __repr__(self):
        return "a number that is known when the step runs"

    def _read(self, *_):
        raise ReadsValue("float(), int(), round() or a function that takes Python's floats alone")

    __float__ = __int__ = __index__ = __round__ = __trunc__ = __complex__ = __format__ = _read

    def __floor__(self):
        return Number(self.tensor.floor())

    def __ceil__(self):
        return Number(self.tensor.ceil())


class Truth:
    """A comparison of two numbers; who asks which it is gets both answers, one after the other."""

    def __init__(self, tensor: torch.Tensor):
        self.tensor = tensor

    def __bool__(self):
        return decide(self.tensor)


def _arithmetic(name: str, reflected: bool):
    operate = getattr(operator, name)

    def method(self, other):
        if isinstance(other, torch.Tensor):
            one = self.fitting(other)
            return operate(other, one) if reflected else operate(one, other)
        if not isinstance(other, (int, float, Number)):
            return NotImplemented
        if not isinstance(other, Number) and _NEUTRAL.get(name) == other:
            if not reflected or name in ("add", "mul"):
                return self
        second = other.tensor if isinstance(other, Number) else other
        pair = (second, self.tensor) if reflected else (self.tensor, second)
        return Number(operate(*pair))

    return method


def _comparison(name: str):
    compare = getattr(operator, name)

    def method(self, other):
        if isinstance(other, torch.Tensor):
            return compare(self.tensor, other)
        if not isinstance(other, (int, float, Number)):
            return NotImplemented
        if self.known is not None and not isinstance(other, Number):
            return self.known.decide(compare, other)
        return Truth(compare(self.tensor, other.tensor if isinstance(other, Number) else other))

    return method


for _name in ("add", "sub", "mul", "truediv", "pow", "floordiv", "mod"):
    setattr(Number, f"__{_name}__", _arithmetic(_name, reflected=False))
    setattr(Number, f"__r{_name}__", _arithmetic(_name, reflected=True))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Number, f"__{_name}__", _comparison(_name))


# ---- branches ----


class _Way:
    """One way through a function: what each `if` is told, and what it asked."""

    def __init__(self, told: list[bool]):
        self.told = told
        self.asked: list[torch.Tensor] = []


_ways: list[_Way] = []


def decide(condition: torch.Tensor) -> bool:
    """The answer of the way that is being gone; beyond what it was told, yes."""
    if not _ways or condition.numel() != 1:
        raise ReadsValue("`if`, on a tensor")
    way = _ways[-1]
    way.asked.append(condition.reshape(()) != 0)
    if len(way.asked) > _MOST_WAYS:
        raise ReadsValue("`if` or `while`, again and again")
    return way.told[len(way.asked) - 1] if len(way.asked) <= len(way.told) else True


def every_way(function) -> list[torch.Tensor]:
    """What function() returns, a list of tensors: it runs once for every way that its decisions can
    go, and each result is chosen by what was decided on."""
    left = [_MOST_WAYS]

    def explore(told: list[bool]) -> list[torch.Tensor]:
        left[0] -= 1
        if left[0] < 0:
            raise ReadsValue(f"`if`, with more than {_MOST_WAYS} ways to go")
        _ways.append(_Way(told))
        try:
            results = function()
        finally:
            way = _ways.pop()
        for depth in reversed(range(len(told), len(way.asked))):
            yes = [True] * (depth - len(told))
            others = explore([*told, *yes, False])
            results = [
                torch.where(way.asked[depth], one, other.to(one.dtype))
                for one, other in zip(results, others, strict=True)
            ]
        return results

    return explore([])


# ---- calls of torch ----

_FORBIDDEN = {
    "__float__": "float()",
    "__int__": "int()",
    "__index__": "an index",
    "__complex__": "complex()",
    "__array__": "numpy",
    "numpy": ".numpy()",
    "tolist": ".tolist()",
}
_SCALED = ("add", "sub", "addcmul", "addcdiv")
_MAKERS = ("tensor", "as_tensor", "asarray", "scalar_tensor")


class Numbers(TorchFunctionMode):
    """Calls of torch that are given a Number get tensors; a tensor that is read gives a Number."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "")
        if name in _FORBIDDEN:
            raise ReadsValue(_FORBIDDEN[name])
        if name == "item" and args[0].numel() == 1:
            return Number(args[0].detach().reshape(()).to(torch.float64))
        if name in ("__bool__", "is_nonzero"):
            return decide(args[0])
        if name == "__set__" and function.__self__ is torch.Tensor.data:
            return args[0].copy_(args[1])
        if name == "__setitem__" and _is_mask_of(args[1], args[0]):
            if not isinstance(args[2], torch.Tensor):
                return _call(torch.Tensor.masked_fill_, "masked_fill_", args, {})
        if name.startswith("_foreach_"):
            return _each(name.removeprefix("_foreach_"), args, kwargs)
        return _call(function, name, args, kwargs)


def _is_mask_of(index, tensor: torch.Tensor) -> bool:
    mask = isinstance(index, torch.Tensor) and index.dtype == torch.bool
    return mask and index.shape == tensor.shape


def _each(name: str, args, kwargs) -> list:
    """An operator on lists of tensors, tensor by tensor."""
    count = next(len(a) for a in args if isinstance(a, (list, tuple)))
    made = []
    for place in range(count):
        own = [a[place] if isinstance(a, (list, tuple)) else a for a in args]
        first = isinstance(own[0], torch.Tensor)
        made.append(_call(getattr(torch.Tensor if first else torch, name), name, own, kwargs))
    return made


def _call(function, name: str, args, kwargs):
    plain = name if name.startswith("__") else name.removesuffix("_")
    if plain in _SCALED and len(args) > (2 if plain in ("add", "sub") else 3):
        args, kwargs = _by_keyword(plain, list(args), kwargs)
    given = [*args, *kwargs.values()]
    if not any(_holds_number(value) for value in given):
        return function(*args, **kwargs)
    scale = kwargs.get("value" if plain.startswith("addc") else "alpha")
    if plain in _SCALED and isinstance(scale, Number):
        return _scaled(function, name, plain, args, scale)
    if plain in _MAKERS and isinstance(args[0], Number):
        dtype = kwargs.get("dtype") or torch.get_default_dtype()
        return args[0].tensor.to(dtype, copy=True)
    if plain in ("full", "full_like", "new_full"):
        number = next(value for value in given if isinstance(value, Number))
        args = [0.0 if value is number else value for value in args]
        kwargs = {key: 0.0 if value is number else value for key, value in kwargs.items()}
        made = function(*args, **kwargs)
        return made + number.tensor.to(made.dtype)
    like = next((value for value in given if isinstance(value, torch.Tensor)), None)
    same = plain in ("lerp", "masked_fill")
    if plain in ("clamp", "clip", "clamp_min", "clamp_max"):
        # One call takes two numbers or two tensors.
        args = [_both_tensors(value, like) for value in args]
        kwargs = {key: _both_tensors(value, like) for key, value in kwargs.items()}
    args = [_fitting(value, like, same) for value in args]
    kwargs = {key: _fitting(value, like, same) for key, value in kwargs.items()}
    return function(*args, **kwargs)


def _by_keyword(plain: str, args: list, kwargs: dict) -> tuple[list, dict]:
    """add(x, alpha, y), as torch was called once, and addcdiv(x, a, b, value)."""
    key = "value" if plain.startswith("addc") else "alpha"
    if not isinstance(args[1], torch.Tensor):
        scale = args.pop(1)
    else:
        scale = args.pop()
    return args, {key: scale} | kwargs


def _scaled(function, name: str, plain: str, args, scale: Number):
    """x + scale * y, or with a product or a quotient for y."""
    base, *others = args
    if plain in ("add", "sub") and not isinstance(others[0], torch.Tensor):
        return _call(function, name, (base, others[0] * scale), {})
    sign = -scale.sign if plain == "sub" else scale.sign
    operand = others[0]
    if plain == "addcmul":
        operand = others[0] * others[1]
    elif plain == "addcdiv":
        operand = others[0] / others[1]
    add = base.addcmul_ if name.endswith("_") else base.addcmul
    return add(operand, scale.magnitude.fitting(base), value=sign)


def _both_tensors(value, like):
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return torch.full((), value, dtype=like.dtype)
    return value


def _holds_number(value) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_holds_number(item) for item in value)
    return isinstance(value, Number)


def _fitting(value, like, same: bool):
    if isinstance(value, Number):
        return value.fitting(like, same)
    if isinstance(value, (list, tuple)) and _holds_number(value):
        return [_fitting(item, like, same) for item in value]
    return value


# ---- functions of Python ----

_MATH = {
    "sqrt": torch.sqrt, "exp": torch.exp, "expm1": torch.expm1, "log": torch.log,
    "log1p": torch.log1p, "log2": torch.log2, "log10": torch.log10, "sin": torch.sin,
    "cos": torch.cos, "tan": torch.tan, "tanh": torch.tanh, "fabs": torch.abs,
    "pow": torch.pow,
}  # fmt: skip
_QUESTIONS = {"isnan": torch.isnan, "isinf": torch.isinf, "isfinite": torch.isfinite}


@contextlib.contextmanager
def numbers():
    """Python's min, max and math take Numbers too, and torch's functions do."""
    kept = [(builtins, name) for name in ("max", "min")]
    kept += [(math, name) for name in (*_MATH, *_QUESTIONS)]
    kept = [(module, name, getattr(module, name)) for module, name in kept]
    for module, name, plain in kept:
        if module is builtins:
            setattr(module, name, _extreme(plain, name))
        else:
            setattr(module, name, _of_math(plain, name))
    try:
        with Numbers():
            yield
    finally:
        for module, name, plain in kept:
            setattr(module, name, plain)


def _of_math(plain, name: str):
    def function(*args):
        if not _holds_number(args):
            return plain(*args)
        if name == "log" and len(args) == 2:
            return function(args[0]) / function(args[1])
        if name == "pow":
            return args[0] ** args[1]
        if name in _QUESTIONS:
            return Truth(_QUESTIONS[name](args[0].tensor))
        return Number(_MATH[name](args[0].tensor))

    return function


def _extreme(plain, name: str):
    pick, bound = (torch.maximum, "min") if name == "max" else (torch.minimum, "max")

    def function(*args, **kwargs):
        values = args[0] if len(args) == 1 and isinstance(args[0], (list, tuple)) else args
        if kwargs or not _holds_number(list(values)):
            return plain(*args, **kwargs)
        found = values[0]
        for value in values[1:]:
            if not isinstance(found, Number):
                found, value = value, found
            if isinstance(value, Number):
                found = Number(pick(found.tensor, value.tensor))
            elif isinstance(found, Number) and isinstance(value, (int, float)):
                found = Number(torch.clamp(found.tensor, **{bound: value}))
            else:
                found = plain(found, value)
        return found

    return function
