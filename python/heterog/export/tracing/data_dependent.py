"""What Python reads of tensors while a step is traced, and may: branches on what no data decides.

`if torch.rand([]) < self.layerdrop` makes every step run other operators, unless the rate is 0 or
1, or both ways run the same. Numbers of one element that torch.rand and its like draw are followed
until Python asks what they are.

`if mask.all()`, with a mask that the model itself has made of ones, is decided by sizes alone. What
follows from inputs and parameters has no values while a step is traced; all else has. What Python
asks of that is a question about data (assertions.py).
"""

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from heterog.base.errors import ExportError
from heterog.export.operators.large_values import values_of, without_values
from heterog.export.operators.written_out import INSTEAD, Distances
from heterog.export.tracing.assertions import Answers, AskedNumber

_UNIFORM = {torch.rand, torch.rand_like, torch.Tensor.uniform_}
_T = torch.Tensor
# Comparisons with a number: whether one drawn from [0, 1) passes for certain, from the number.
def _less(limit):
    return True if limit >= 1 else False if limit <= 0 else None


def _greater(limit):
    return True if limit < 0 else False if limit >= 1 else None


_COMPARISONS = (
    {f: _less for f in (torch.lt, torch.less, _T.lt, _T.less, _T.__lt__, torch.le, _T.le, _T.__le__)}
    | {f: _greater for f in (torch.gt, torch.greater, _T.gt, _T.greater, _T.__gt__,
                             torch.ge, _T.ge, _T.__ge__)}
)  # fmt: skip


_READS = {_T.__bool__, _T.item, _T.__float__, _T.__int__, _T.__index__, _T.tolist, torch.equal}
# Beside those whose operators say that they are random.
_RANDOM_NAMES = ("rand", "bernoulli", "multinomial", "normal", "uniform", "dropout", "exponential")


class OpenDecision(Exception):
    """Python asked for the outcome of a comparison that a random number decides."""


class Decisions(TorchFunctionMode):
    """Answers Python's questions about random numbers of one element.

    `outcome`: what every comparison that is open comes to; None: an OpenDecision is raised.
    `answers`: to questions about data. `distances`: how they are computed, call by call.
    """

    def __init__(
        self, fake_mode, outcome: bool | None = None, answers: Answers | None = None,
        distances: list[bool] | None = None,
    ):  # fmt: skip
        super().__init__()
        self._distances = Distances([] if distances is None else distances)
        self._answers = answers or Answers()
        self._fake_mode = fake_mode
        self._outcome = outcome
        self._drawn: dict[int, torch.Tensor] = {}  # kept, so that no other tensor gets its id
        self._compared: dict[int, tuple[torch.Tensor, bool | None]] = {}
        self._random: dict[int, torch.Tensor] = {}  # all that follows from random numbers

    def __torch_function__(self, func, types, args=(), kwargs=None):
        func = self._distances if func is torch.cdist else INSTEAD.get(func, func)
        first = args[0] if args else None
        if func is _T.__bool__ and id(first) in self._compared:
            return self._decide(self._compared[id(first)][1])
        if func in (_T.item, _T.__float__) and id(first) in self._drawn:
            return DrawnNumber(self)
        if func in _READS:
            tensors = _tensors((args, kwargs))
            with disable_proxy_modes_tracing():
                if all(map(self._has_values, tensors)):
                    return func(*args, **(kwargs or {}))
            values = None if any(id(t) in self._random for t in tensors) else values_of(tensors)
            if values is not None:
                by_id = {id(t): value for t, value in zip(tensors, values, strict=True)}
                args, kwargs = tree_map(lambda x: by_id.get(id(x), x), (args, kwargs or {}))
                with disable_proxy_modes_tracing():
                    return func(*args, **kwargs)
            if func in (_T.__bool__, torch.equal):
                return self._answers.next()
            if func is _T.item and first.numel() == 1:
                return AskedNumber(self._answers)
        result = func(*args, **(kwargs or {}))
        self._follow(func, args, kwargs, result)
        if type(result) is torch.Tensor and not any(result is t for t in _tensors((args, kwargs))):
            result = without_values(result, self._fake_mode)
        if not isinstance(result, torch.Tensor) or result.numel() != 1:
            return result
        if func in _UNIFORM and not _bounds(func, args, kwargs or {}):
            self._drawn[id(result)] = result
        elif func in _COMPARISONS and id(first) in self._drawn and len(args) == 2:
            limit = args[1]
            if isinstance(limit, (int, float)):
                self._compared[id(result)] = (result, _COMPARISONS[func](limit))
        return result

    def _has_values(self, tensor: torch.Tensor) -> bool:
        fake = isinstance(tensor, FakeTensor) or tensor.device.type == "meta"
        return not fake and id(tensor) not in self._random

    def _follow(self, func, args, kwargs, result) -> None:
        """Notes real tensors that are random."""
        made = [t for t in _tensors(result) if not isinstance(t, FakeTensor)]
        if not made:
            return
        name = getattr(func, "__name__", "")
        drawn = any(part in name for part in _RANDOM_NAMES)
        if drawn or any(id(t) in self._random for t in _tensors((args, kwargs))):
            self._random |= {id(t): t for t in made}

    def _decide(self, certain: bool | None) -> bool:
        if certain is not None:
            return certain
        if self._outcome is None:
            raise OpenDecision
        return self._outcome


def _tensors(value) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _bounds(func, args, kwargs) -> bool:
    """Whether numbers are drawn from other bounds than [0, 1)."""
    return func is _T.uniform_ and (len(args) > 1 or bool(kwargs))


class DrawnNumber:
    """A number drawn from [0, 1), which can be compared with a rate."""

    def __init__(self, decisions: Decisions):
        self._decisions = decisions

    def __lt__(self, limit):
        return self._decisions._decide(_less(limit))

    def __gt__(self, limit):
        return self._decisions._decide(_greater(limit))

    __le__, __ge__ = __lt__, __gt__
    __hash__ = None

    def _compute(self, *_others):
        raise ExportError(
            "a number that Python draws at random is computed with, and every step would take the same "
            "one; draw a tensor with torch.rand, and compute with that"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _compute
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _compute
    __pow__ = __rpow__ = __neg__ = __abs__ = __round__ = __eq__ = __ne__ = __bool__ = _compute
    __int__ = __float__ = __index__ = __complex__ = _compute
