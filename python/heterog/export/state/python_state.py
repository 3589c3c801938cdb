"""What a step reads and changes of Python's own state: counters, flags, caches, random numbers.

A graph is one photograph of it. While a step is traced, every place that the step's registry knows
is compared before and after; a step that would be another one the next time is refused by name.
"""

import contextlib
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from heterog.base.errors import ExportError
from heterog.base.untouched import untouched
from heterog.export.graph.outputs import loss_and_outputs
from heterog.export.state.generators import generators_of_process
from heterog.export.state.registry import Place, Registry

_RUNS = 3
_ROUNDING = 2e-6  # of the largest element, between two runs that are the same
_CHANGED_BY_TRACING = ("hooks", "_parameters", "_buffers", "_modules", "values", "code")


@dataclass(frozen=True)
class Kept:
    """What a step leaves in Python, and does not look at."""

    counts: list = field(default_factory=list)  # [path of the module, attribute, by how much]
    left: list = field(default_factory=list)  # names of attributes that hold other things


class PythonState:
    """Of one export."""

    def __init__(self, model: torch.nn.Module, loss_fn, optimizer: torch.optim.Optimizer):
        self._model, self._loss_fn = model, loss_fn
        self._registry = Registry(model, loss_fn, optimizer)
        self._changed: dict[tuple, Place] = {}

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Around the forward pass of a trace; what it has changed is as before afterwards."""
        snapshot = self._registry.snapshot()
        drawn = self._draws()
        done = False
        try:
            yield
            done = True
        finally:
            changes = [
                change for change in self._registry.places_changed(snapshot)
                if change[0].kind not in _CHANGED_BY_TRACING and not self._is_held(*change)
            ]  # fmt: skip
            for place, _, _ in changes:
                place.put_back()
        if not done:
            return
        for name, before in drawn.items():
            if self._draws()[name] != before:
                raise ExportError(
                    f"the step draws from {name}, and would repeat one draw for ever; draw with "
                    "torch.rand and its like, which every step does anew"
                )
        for place, _, _ in changes:
            self._changed.setdefault((id(place.holder), repr(place.key)), place)

    def _is_held(self, place: Place, old, new) -> bool:
        """Whether the step has it as a buffer: an attribute of a module that stays a tensor."""
        tensors = isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor)
        return tensors and any(vars(module) is place.holder for module in self._model.modules())

    def _draws(self) -> dict[str, bytes]:
        found = generators_of_process() | self._registry.generators
        return {name: pickle.dumps(generator) for name, generator in found.items()}

    # ---- what was changed ----

    def settle(self, inputs: tuple, around=contextlib.nullcontext) -> Kept:
        """Raises where a later step would be another. `inputs`: of a small batch; `around`: makes the
        context that the loss is computed in."""
        places = list(self._changed.values())
        if not places or not _has_values(self._model):
            return Kept(left=[place.name for place in places])
        start = [place.get() for place in places]
        self._around = around
        inputs = tuple(map(self._as_parameters, inputs))
        try:
            found, states = [], [start]
            for _ in range(_RUNS):
                found.append(self._run(inputs))
                states.append([place.get() for place in places])
            names = ", ".join(place.name for place in places[:3])
            for other in found[1:]:
                if not all(map(_close, found[0], other)):
                    raise ExportError(
                        f"{names}: forward keeps it from step to step, and the next step computes "
                        "something else by it on the same data; a graph is one step: keep it in a "
                        "buffer, or change it between steps (runners: on_change='export')"
                    )
            moving = [n for n in range(len(places)) if not _same(states[-1][n], states[-2][n])]
            for n in moving:
                place, value = places[n], start[n]
                if not _is_number(value) or self._is_read(inputs, place, value):
                    raise ExportError(
                        f"{place.name}: it changes with every step (it was {_shown(value)}, then "
                        f"{_shown(states[1][n])}), and the step reads it; a graph is one step: count "
                        "in a buffer, or between steps (runners: on_change='export')"
                    )
        finally:
            for place, value in zip(places, start, strict=True):
                place.put(value)
        counts = [self._count(places[n], [state[n] for state in states]) for n in moving]
        left = [place.name for n, place in enumerate(places) if n not in moving]
        return Kept(counts, left)

    def _run(self, inputs: tuple) -> list[torch.Tensor]:
        """Loss and gradients; tensors and random numbers are as before afterwards."""
        attributes = [
            (vars(module), name, value, value.clone())
            for module in self._model.modules()
            for name, value in vars(module).items()
            if isinstance(value, torch.Tensor)
        ]
        with untouched(self._model), torch.enable_grad():
            torch.manual_seed(0)
            with self._around():
                loss, _ = loss_and_outputs(self._loss_fn(self._model, *inputs))
            trained = [p for p in self._model.parameters() if p.requires_grad]
            gradients = torch.autograd.grad(loss, trained, allow_unused=True)
        for holder, name, tensor, value in attributes:
            holder[name] = tensor
            with torch.no_grad():
                tensor.copy_(value)
        return [loss.detach(), *(g for g in gradients if g is not None)]

    def _as_parameters(self, tensor: torch.Tensor) -> torch.Tensor:
        """In double precision where the model is."""
        double = any(p.dtype == torch.float64 for p in self._model.parameters())
        return tensor.double() if double and tensor.is_floating_point() else tensor

    def _is_read(self, inputs: tuple, place: Place, value) -> bool:
        read: list = []
        place.put(_Counted(value, read))
        try:
            self._run(inputs)
        except Exception:  # of what can only be counted on
            return True
        finally:
            place.put(value)
        return bool(read)

    def _count(self, place: Place, values: list) -> list:
        """[path, attribute, by how much] of a counter that the runner carries on."""
        by = {after - before for before, after in zip(values, values[1:], strict=False)}
        for path, module in self._model.named_modules():
            if vars(module) is place.holder and len(by) == 1:
                return [path, place.key, by.pop()]
        raise ExportError(
            f"{place.name}: the step counts there, and nothing of it reads that; a runner would not "
            "count: do it between the steps, or in an attribute of a module"
        )


class _Counted:
    """A number that may be counted on and shown; whatever else is done with it is noted in `read`."""

    def __init__(self, value, read: list):
        self.__dict__.update(value=value, read=read)

    def __getattr__(self, name):
        self.read.append(name)
        return getattr(self.value, name)


def _counting(name: str):
    def add(self, other):
        plain = _is_number(other)
        if not plain:
            self.read.append(name)
        return _Counted(getattr(self.value, name)(other), self.read)

    return add


def _reading(name: str):
    def read(self, *others):
        self.read.append(name)
        return getattr(self.value, name)(*others)

    return read


def _showing(name: str):
    return lambda self, *given: getattr(self.value, name)(*given)


for _name in ("__add__", "__radd__", "__sub__"):
    setattr(_Counted, _name, _counting(_name))
for _name in ("__str__", "__repr__", "__format__"):
    setattr(_Counted, _name, _showing(_name))
for _name in (
    "__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__", "__bool__", "__hash__", "__int__",
    "__float__", "__index__", "__complex__", "__mul__", "__rmul__", "__truediv__", "__rtruediv__",
    "__floordiv__", "__rfloordiv__", "__mod__", "__rmod__", "__pow__", "__rpow__", "__rsub__",
    "__neg__", "__abs__", "__round__", "__and__", "__or__", "__xor__", "__lshift__", "__rshift__",
):  # fmt: skip
    setattr(_Counted, _name, _reading(_name))


def _is_number(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _has_values(model: torch.nn.Module) -> bool:
    tensors = (*model.parameters(), *model.buffers())
    return all(tensor.device.type == "cpu" for tensor in tensors)


def _same(one, other) -> bool:
    """Of what stands in a place after one step and after the next; tensors have been compared by
    what they lead to."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.shape == other.shape
    if type(one) is not type(other):
        return False
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, (int, float, str, bytes, bool, type(None))):
        return one == other
    return True  # an object, which holds what it holds


def _close(one: torch.Tensor, other: torch.Tensor) -> bool:
    if torch.equal(one, other) or not one.numel():
        return True
    scale = max(one.abs().max().item(), 1e-30)
    return (one - other).abs().max().item() <= _ROUNDING * scale


def _shown(value) -> str:
    text = repr(value) if _is_number(value) else type(value).__name__
    return text if len(text) <= 40 else f"{text[:37]}…"
