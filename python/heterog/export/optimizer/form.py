"""How an optimizer updates one parameter, read from its own step(): by which operators, what it keeps
from step to step, and what that holds before the first one."""

import contextlib
from dataclasses import dataclass, replace

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from heterog.base.errors import ExportError
from heterog.export.graph.diagnosis import python_line
from heterog.export.graph.record import constant, reads, record, results, tidy
from heterog.export.optimizer.number import Number, ReadsValue
from heterog.export.optimizer.one_step import Entry, Left, all_ways, first_state, left_by_step
from heterog.export.optimizer.state_form import Count, Kept, StateForm

_aten = torch.ops.aten
_SCALAR = ((), (), torch.float64)  # shape, strides, dtype
_STEP = 4  # of the arguments of a form's module


@dataclass
class Form:
    """`module` takes the parameter, its gradient, the learning rate, the momentum, the number of the
    step, and what is kept; it returns the next parameter, and what is kept next."""

    module: torch.fx.GraphModule
    state: StateForm

    def reads_step(self) -> bool:
        places = [node for node in self.module.graph.nodes if node.op == "placeholder"]
        return bool(places[_STEP].users)


class Reader:
    """Reads the forms of the parameters of one group."""

    def __init__(self, update, group):  # of settings.py
        self.update = update
        self.group = group
        # What PyTorch's own begin with depends on no size, and each goes alone.
        self._torchs = type(update.optimizer).__module__.startswith("torch.optim")
        self._alone = self._torchs
        self._begun: dict = {}

    def form(self, parameter: tuple, gradient: tuple) -> Form:
        """`parameter`, `gradient`: (shape, strides, dtype)."""
        with _explained(self.update.kind, parameter):
            if not self._alone:
                _check_alone(self.update, self.group, parameter, gradient)
                self._alone = True
            begun = self._begin(parameter, gradient)
            return _read(self.update, self.group, parameter, gradient, begun)

    def _begin(self, parameter: tuple, gradient: tuple) -> "_Begun":
        if not self._torchs:
            return _begin(self.update, self.group, parameter, gradient)
        key = len(parameter[0]), parameter[2], gradient[2]
        if key not in self._begun:
            self._begun[key] = _begin(self.update, self.group, parameter, gradient)
            return self._begun[key]
        with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
            p, g, *settings = (_fake(mode, f) for f in (parameter, gradient, _SCALAR, _SCALAR))
            left = all_ways(lambda: _one_step(self.update, self.group, [(p, g)], *settings))
        return replace(self._begun[key], left=left)


@contextlib.contextmanager
def _explained(kind: str, parameter: tuple):
    """What a step() stops at, in one line."""
    try:
        yield
    except ExportError:
        raise
    except ReadsValue as error:
        raise ExportError(
            f"optimizer: {kind} ({python_line(error)}): its step() asks for the value of a tensor, or "
            f"of a number that is known only when the step runs, by {error}; it may compute with "
            "tensors, .item(), arithmetic, min, max, the functions of `math` and `if`"
        ) from error
    except Exception as error:
        name, lines = type(error).__name__, str(error).strip().splitlines() or [""]
        where = f"optimizer: {kind} ({python_line(error)})"
        if "DataDependent" in name or "DynamicOutputShape" in name:
            raise ExportError(
                f"{where}: the operators of its step() depend on the values of tensors (a mask as an "
                "index, nonzero, a number that an operator takes from a tensor); use torch.where, and "
                "operators that take tensors"
            ) from error
        raise ExportError(
            f"{where}: its step() cannot be traced for a parameter of shape {list(parameter[0])}: "
            f"{name}: {lines[0][:200]}"
        ) from error


def _one_step(update, group, pairs, lr, momentum, given=None, group_counts=None) -> Left:
    rate = Number(lr)
    if group.lr_factor != 1.0:
        rate = rate * group.lr_factor
    options = dict(group.options) | {"lr": rate} | (group_counts or {})
    # What says how to compute, not what. Adam's differentiable form has the fewest operators.
    adam = isinstance(update.optimizer, torch.optim.Adam)
    for key in ("foreach", "fused", "capturable", "differentiable"):
        if key in options:
            options[key] = adam and key == "differentiable"
    if update.momentum is not None:
        number = Number(momentum, known=update.momentum)
        if "betas" in options:
            options["betas"] = (number, *options["betas"][1:])
        else:
            options["momentum"] = number
    return left_by_step(update.optimizer, options, pairs, given)


def _check_alone(update, group, parameter, gradient) -> None:
    """Each parameter is updated by what belongs to it: another one beside it changes nothing."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)

    def run(p, g, other, its_gradient, lr, momentum):
        pairs = [(p, g), (other, its_gradient)]
        return all_ways(lambda: _one_step(update, group, pairs, lr, momentum)).tensors()

    forms = [parameter, gradient, parameter, gradient, _SCALAR, _SCALAR]
    module = record(run, [_fake(mode, form) for form in forms], mode)
    others = set(_places(module)[2:4])
    if reads(results(module), others):
        raise ExportError(
            f"optimizer: {update.kind}: its step() updates a parameter by what it reads of others (a "
            "norm over all gradients, say), which is not exported; clip_norm scales gradients by "
            "their common norm"
        )


def _read(update, group, parameter, gradient, begun: "_Begun") -> Form:
    counts = _counts(begun)
    group_counts = {entry.name: _group_count(update, entry) for entry in begun.left.group}
    while True:
        module, wrong = _later(update, group, parameter, gradient, begun, counts, group_counts)
        if not wrong:
            break
        for name in wrong:
            if name in group_counts:
                raise _group_refusal(update, name)
            del counts[name]
    left = begun.left
    kept = []
    for entry in left.entries:
        if entry.kind != "constant" and entry.name not in counts:
            shape, strides, dtype = _form_of(left.now[entry.name])
            start = begun.starts.get(entry.name) or 0
            kept.append(Kept(entry.name, shape, strides, dtype, entry.python, start))
    constants = {e.name: e.after for e in left.entries if e.kind == "constant"}
    order = [entry.name for entry in left.entries]
    state = StateForm(kept, counts, constants, order, begun.early, group_counts)
    return Form(module, state)


@dataclass
class _Begun:
    """What is known of the first step."""

    left: Left
    starts: dict[str, float | None]  # what entries hold before it; None: it depends on the inputs
    ends: dict[str, float | None]  # and after it
    plain: bool  # it is what later steps are too, of state that holds `starts`, or the first values
    early: bool


def _begin(update, group, parameter, gradient) -> _Begun:
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    found: dict = {}

    def run(p, g, lr, momentum):
        left = all_ways(lambda: _one_step(update, group, [(p, g)], lr, momentum))
        again = left
        if left.known:
            # The same from the state as it was first set, which is how every later step begins.
            given = _state(left.entries, left.first, first=True)
            again = all_ways(lambda: _one_step(update, group, [(p, g)], lr, momentum, given))
            _check_entries(update, [e.name for e in left.entries], [e.name for e in again.entries])
        found["left"] = left
        found["early"] = bool(first_state(update.optimizer, group.options, p.detach()))
        return [
            *(left.parameter, *left.now.values()),
            *(again.parameter, *again.now.values()),
            *left.first.values(),
        ]

    module = record(run, [_fake(mode, f) for f in (parameter, gradient, _SCALAR, _SCALAR)], mode)
    left: Left = found["left"]
    nodes, count = results(module), 1 + len(left.now)
    starts = {n: constant(module, x) for n, x in zip(left.now, nodes[2 * count :], strict=True)}
    ends = {n: constant(module, x) for n, x in zip(left.now, nodes[1:count], strict=True)}
    steady = all(e.before == e.after for e in left.entries if e.kind == "constant")
    plain = left.known and steady and nodes[:count] == nodes[count : 2 * count]
    if not plain and _starts_as_zeros(update, group):
        starts, plain = dict.fromkeys(left.now, 0), True
    return _Begun(left, starts, ends, plain, found["early"])


def _starts_as_zeros(update, group) -> bool:
    """torch's SGD takes its first buffer from the gradient. So does a later step, where the buffer
    holds zeros and nothing dampens."""
    own = type(update.optimizer).step is torch.optim.SGD.step
    return own and group.options["dampening"] == 0


def _counts(begun: _Begun) -> dict[str, Count]:
    """Entries that the first step has counted up by one."""
    counts = {}
    for entry in begun.left.entries:
        tensor = begun.left.now.get(entry.name)
        start, end = begun.starts.get(entry.name), begun.ends.get(entry.name)
        if entry.kind == "constant" or tensor.dim() or start is None or end != start + 1:
            continue
        if start == int(start):
            counts[entry.name] = Count(int(start), entry.python or tensor.dtype)
    return counts


def _group_count(update, entry: Entry) -> Count:
    plain = entry.kind == "number" and isinstance(entry.before, int) and entry.after is not None
    if not plain or entry.after != entry.before + 1:
        raise _group_refusal(update, entry.name)
    start = update.optimizer.defaults.get(entry.name, 0)
    return Count(start if isinstance(start, int) else 0, int)


def _group_refusal(update, name: str) -> ExportError:
    return ExportError(
        f"optimizer: {update.kind}: its step() changes '{name}' of param_groups, and not by one; what "
        "lasts from step to step is kept in state[parameter]"
    )


def _later(update, group, parameter, gradient, begun: _Begun, counts, group_counts):
    """The step at any number, and the names of counts that turned out to be none."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    left = begun.left
    names = [name for name in left.now if name not in counts]
    counting = [*counts, *group_counts]
    # Where the first values depend on the inputs, or the first step is another one.
    moving = [name for name in names if begun.starts[name] is None] if begun.plain else []

    def run(p, g, lr, momentum, step, *held):
        held = dict(zip([*names, *counting], held, strict=True))
        start = None
        if moving or not begun.plain:
            start = all_ways(lambda: _one_step(update, group, [(p, g)], lr, momentum))
        for name in moving:
            held[name] = _first_or(step, start.first[name], held[name])
        given = _state(left.entries, held)
        of_group = {name: Number(held[name]) for name in group_counts}
        after = all_ways(
            lambda: _one_step(update, group, [(p, g)], lr, momentum, given, of_group)
        )  # fmt: skip
        _check_entries(update, _facts(left), _facts(after))
        outputs = [after.parameter, *(after.now[name] for name in names)]
        if not begun.plain:
            firsts = [start.parameter, *(start.now[name] for name in names)]
            outputs = [_first_or(step, a, b) for a, b in zip(firsts, outputs, strict=True)]
        new = [after.now[n] if n in counts else after.group_now.get(n) for n in counting]
        return [*outputs, *new]

    forms = [parameter, gradient, _SCALAR, _SCALAR, _SCALAR]
    forms += [_form_of(left.now[name]) for name in names] + [_SCALAR] * len(counting)
    module = record(run, [_fake(mode, form) for form in forms], mode)
    _check_forms(update, left, names, results(module)[1:])
    places = _places(module)
    ends = results(module)
    (end,) = [node for node in module.graph.nodes if node.op == "output"]
    end.args = (ends[: 1 + len(names)],)
    wrong = []
    every = counts | group_counts
    for name, place, new in zip(
        counting, places[5 + len(names) :], ends[1 + len(names) :], strict=True
    ):
        if _is_next(new, place):
            _take_from_step(module, place, places[_STEP], every[name].start)
        else:
            wrong.append(name)
    if not wrong:
        for place in places[5 + len(names) :]:
            module.graph.erase_node(place)
        tidy(module)
    return module, wrong


def _first_or(step, first, later) -> torch.Tensor:
    return torch.where(step <= 1, first.to(later.dtype), later)


def _state(entries: list[Entry], values: dict, first: bool = False) -> dict:
    """As step() finds it in state[parameter]."""
    state: dict = {}
    for entry in entries:
        if entry.kind == "constant":
            state[entry.name] = entry.before if first else entry.after
        elif entry.kind == "tensor":
            state[entry.name] = values[entry.name]
        elif first and entry.before is not None:
            state[entry.name] = entry.before
        else:
            state[entry.name] = Number(values[entry.name])
    return state


def _facts(left: Left) -> list:
    return [(e.name, e.kind, e.after if e.kind == "constant" else 0) for e in left.entries]


def _check_entries(update, first: list, later: list) -> None:
    if first != later:
        raise ExportError(
            f"optimizer: {update.kind}: the entries of its state are others after a later step than "
            "after the first one; make them all in the first step, and keep their kind"
        )


def _check_forms(update, left: Left, names: list[str], nodes: list) -> None:
    for name, node in zip(names, nodes, strict=False):
        was, now = left.now[name], node.meta["val"]
        if (was.shape, was.dtype) != (now.shape, now.dtype):
            raise ExportError(
                f"optimizer: {update.kind}: '{name}' of its state is {was.dtype} of shape "
                f"{list(was.shape)} after the first step and {now.dtype} of {list(now.shape)} after "
                "a later one; it keeps its shape and dtype"
            )


def _is_next(node, place) -> bool:
    """Whether it is `place` + 1."""
    plain = isinstance(node, torch.fx.Node) and node.target is _aten.add.Tensor
    return plain and node.args[0] is place and node.args[1] == 1 and not node.kwargs


def _take_from_step(module, place, step, start: int) -> None:
    """Has a count's readers read the number of the step, counted from `start` + 1."""
    graph = module.graph
    first = next(node for node in graph.nodes if node.op != "placeholder")
    for user in list(place.users):
        if _is_next(user, place) and start == 0:
            user.replace_all_uses_with(step)
    if not place.users or start == 1:
        place.replace_all_uses_with(step)
        return
    with graph.inserting_before(first):
        before = graph.call_function(_aten.sub.Tensor, (step, 1 - start))
    before.meta["val"] = step.meta["val"]
    place.replace_all_uses_with(before)


def _places(module) -> list:
    return [node for node in module.graph.nodes if node.op == "placeholder"]


def _form_of(tensor: torch.Tensor) -> tuple:
    return tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype


def _fake(mode: FakeTensorMode, form: tuple) -> torch.Tensor:
    shape, strides, dtype = form
    with mode:
        return torch.empty_strided(shape, strides, dtype=dtype, device="cpu")
