"""Runs an optimizer's own step() on tensors that stand for one parameter and its gradient."""

import contextlib
import inspect
from collections import defaultdict
from dataclasses import dataclass

import torch

from heterog.base.errors import ExportError
from heterog.export.optimizer.number import Number, every_way, numbers


@dataclass(frozen=True)
class Entry:
    """One thing that an optimizer keeps of a parameter from step to step."""

    name: str
    kind: str  # "tensor", "number" or "constant", which is neither
    python: type | None = None  # int or float, of a number
    before: object = None  # Python's own value when it was first set, and after the step
    after: object = None


@dataclass
class Left:
    """What one step leaves of one parameter. Numbers are tensors without dimensions."""

    parameter: torch.Tensor
    entries: list[Entry]
    now: dict[str, torch.Tensor]  # of tensors and numbers
    first: dict[str, torch.Tensor]  # the same when they were first set
    known: bool  # `first` is right for all: the step itself may have set them only at its end
    group: list[Entry]  # what the step changed of the parameter's group
    group_now: dict[str, torch.Tensor]

    def tensors(self) -> list[torch.Tensor]:
        parts = (self.now, self.first, self.group_now)
        return [self.parameter, *(value for part in parts for value in part.values())]

    def with_tensors(self, tensors: list[torch.Tensor]) -> "Left":
        left = iter(tensors)
        parameter = next(left)
        now, first, group = (
            {name: next(left) for name in part} for part in (self.now, self.first, self.group_now)
        )
        return Left(parameter, self.entries, now, first, self.known, self.group, group)


def stand_in(optimizer: torch.optim.Optimizer, groups: list[dict]) -> torch.optim.Optimizer:
    """The same optimizer with other groups of parameters, and no state."""
    made = object.__new__(type(optimizer))
    made.__dict__.update(optimizer.__dict__)
    made.__dict__.pop("step", None)  # a scheduler's, which counts the calls of the given one
    made.param_groups = groups
    made.state = defaultdict(dict)
    return made


def first_state(optimizer: torch.optim.Optimizer, options: dict, parameter: torch.Tensor) -> dict:
    """What a new optimizer holds of a parameter before its first step: of most, nothing."""
    if not optimizer.state:
        return {}
    known = inspect.signature(type(optimizer).__init__).parameters
    defaults = {key: value for key, value in optimizer.defaults.items() if key in known}
    try:
        new = type(optimizer)([{"params": [parameter], **options}], **defaults)
    except Exception as error:
        raise ExportError(
            f"optimizer: {type(optimizer).__name__} has state already, and a new one, which shows "
            f"how the state starts, cannot be made ({type(error).__name__}: {error}); pass a "
            "function that makes the optimizer from the list of parameters"
        ) from error
    return dict(new.state.get(parameter, {}))


def left_by_step(optimizer, options: dict, pairs: list, given: dict | None) -> Left:
    """One step of the parameters of `pairs`, (value, gradient) each; what it leaves of the first.
    `given`: the state of that one; None: as a new optimizer has it."""
    kind = type(optimizer).__name__
    parameters = []
    for value, gradient in pairs:
        parameter = value.clone().requires_grad_()
        parameter.grad = gradient.clone()
        parameters.append(parameter)
    states = {parameter: _Watched() for parameter in parameters}
    plain = {key: value for key, value in options.items() if not isinstance(value, Number)}
    for parameter, state in states.items():
        if parameter is parameters[0] and given is not None:
            # Copies: another way through the same step begins with the same values.
            dict.update(state, {key: _copied(value) for key, value in given.items()})
        else:
            state.update(first_state(optimizer, plain, parameter))
    shell = stand_in(optimizer, [options | {"params": parameters}])
    shell.state = defaultdict(_Watched, states)
    before = dict(vars(shell))
    with _without_profiler():
        shell.step()
    for name, value in vars(shell).items():
        if name not in before or _differs(value, before[name]):
            raise ExportError(
                f"optimizer: {kind}: its step() changes its own '{name}'; what lasts from step to "
                "step is kept in state[parameter]"
            )
    for key in shell.state:
        if not any(key is parameter for parameter in parameters):
            raise ExportError(
                f"optimizer: {kind}: it keeps state[{key!r}]; what lasts from step to step is kept "
                "in state[parameter]"
            )
    return _left(kind, parameters[0], shell, options)


def _left(kind: str, parameter, shell, options: dict) -> Left:
    state = shell.state[parameter]
    first = state.first if isinstance(state, _Watched) else {}
    left = Left(parameter.detach(), [], {}, {}, True, [], {})
    for name, value in state.items():
        entry = _entry(kind, name, first.get(name), value)
        left.entries.append(entry)
        if entry.kind != "constant":
            left.now[name] = _as_tensor(value)
            start = first.get(name, value) if entry.before is None else entry.before
            left.first[name] = _as_tensor(start)
        left.known &= name in first
    for name, value in shell.param_groups[0].items():
        if name != "params" and (name not in options or value is not options[name]):
            left.group.append(_entry(kind, name, options.get(name, 0), value))
            if left.group[-1].kind != "constant":
                left.group_now[name] = _as_tensor(value)
    return left


def _entry(kind: str, name: str, before, after) -> Entry:
    if isinstance(after, torch.Tensor):
        return Entry(name, "tensor")
    if isinstance(after, Number):
        return Entry(name, "number", int if _is_plain(before, int) else float)
    if _is_plain(after, (int, float)):
        python = int if isinstance(after, int) else float
        if python is int and before == after == 1:
            before = 0  # state["step"] = state.get("step", 0) + 1
        return Entry(name, "number", python, before if _is_plain(before, (int, float)) else None, after)
    if after is None or isinstance(after, (bool, str)):
        return Entry(name, "constant", None, before, after)
    raise ExportError(
        f"optimizer: {kind}: '{name}' of its state is a {type(after).__name__}; what lasts from step "
        "to step is kept as tensors or numbers"
    )


def _is_plain(value, types) -> bool:
    return isinstance(value, types) and not isinstance(value, bool)


def _copied(value):
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _as_tensor(value) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value.detach()
    return value.tensor if isinstance(value, Number) else torch.full((), value, dtype=torch.float64)


def _differs(value, before) -> bool:
    if value is before:
        return False
    return not (_is_plain(value, (int, float, str)) and value == before)


def all_ways(function) -> Left:
    """What function() leaves, whichever way its branches go."""
    found: list[Left] = []

    def once() -> list[torch.Tensor]:
        left = function()
        if found and [e.name for e in left.entries] != [e.name for e in found[0].entries]:
            raise ExportError(
                "optimizer: which entries its state has depends on values that are known only when "
                "the step runs; make them all in the first step"
            )
        found.append(left)
        return left.tensors()

    with numbers():
        tensors = every_way(once)
    return found[0].with_tensors(tensors)


class _Watched(dict):
    """Keeps a copy of what each entry was first set to."""

    def __init__(self):
        super().__init__()
        self.first: dict = {}

    def __setitem__(self, key, value):
        if key not in self and key not in self.first:
            self.first[key] = _copied(value)
        super().__setitem__(key, value)

    def setdefault(self, key, default=None):
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *given, **more):
        for key, value in dict(*given, **more).items():
            self[key] = value


@contextlib.contextmanager
def _without_profiler():
    """Every step() announces itself to PyTorch's profiler, which would be an operator of its own."""
    profiler = torch.autograd.profiler
    before = profiler.record_function
    profiler.record_function = lambda *_: contextlib.nullcontext()
    try:
        yield
    finally:
        profiler.record_function = before
