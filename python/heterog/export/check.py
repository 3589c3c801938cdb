"""Runs an exported step beside eager PyTorch, on the same random data, before the graph is written."""

import contextlib
import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn.utils.stateless import _reparametrize_module
from torch.utils.flop_counter import flop_registry

from heterog.base.errors import ExportError
from heterog.export.fixed_draws import FixedDraws, fixed_operators
from heterog.export.graph.ir import SCALE
from heterog.export.graph.known_batches import holds_at
from heterog.export.graph.outputs import GRADIENT_NORM, loss_and_outputs, outputs_of
from heterog.export.interpreter import (
    Setting,
    dtype_of,
    given_values,
    operator_of,
    resolve,
    run,
    shape_of,
    state_from_file,
)
from heterog.export.operators import attention_reference
from heterog.export.operators.autocast import autocast
from heterog.export.operators.batch_norm import in_one_process
from heterog.export.operators.draws import BY_COUNTER
from heterog.export.operators.dropout import without_dropout
from heterog.export.optimizer.one_step import first_state, stand_in
from heterog.export.optimizer.settings import Update, momentum_of
from heterog.export.tracing.masters import Masters, inputs_narrowed, is_master

# A step of so many operations and elements takes a few seconds on two cores, in float64, together
# with PyTorch's own. Of larger ones two steps of few samples are checked, in their own precision, if
# those are not more than this; of still larger ones how a second step is traced.
MOST_FLOPS = 2e10
MOST_ELEMENTS = 5e7
MOST_FLOPS_OF_FEW = 2e11
MOST_ELEMENTS_OF_FEW = 2e8

# Of the largest element. In float64 only the order of sums differs, which is some 1e-15, and 1e-8
# where inputs of 1e7 are normalised; a graph that means something else is off by far more. In the
# model's own precision rounding differs too, and Adam divides by what rounding leaves of gradients near 0, so parameters are
# not compared then.
_TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3, torch.bfloat16: 5e-2,
              torch.float16: 5e-2}  # fmt: skip
_NARROW = ("float16", "bfloat16", "float32")


@dataclass
class Checked:
    """What was exported, and how."""

    model: object  # a module, or the function that builds one
    make_inputs: object  # batch → tuple of tensors
    names: list[str]  # of what make_inputs returns
    loss_fn: object
    update: Update
    dropout: bool
    autocast: torch.dtype | None
    clip_norm: float | None
    constants: dict[str, torch.Tensor]
    masters: Masters | None = None


class _Differs(Exception):
    """A tensor is not what PyTorch makes it; the text says which."""


class _Computes(_Differs):
    """The loss or a gradient is not, which the model's own precision may explain."""


class _Unable(Exception):
    """PyTorch's own step cannot be run here; the text says why."""


def check_step(
    graph: dict, checked: Checked, always: bool, second_alike: Callable[[], bool | None]
) -> str:
    """Says what was compared, or why nothing was; an ExportError where a tensor differs.

    `always`: whatever it costs, and an error where nothing can be compared. `second_alike`: whether a
    second step runs the same operators as the first; None: that cannot be said.
    """
    batches = check_batches(graph["traced_batches"], graph["holds"])
    flops, elements = work(graph, sum(batches))
    few = min(graph["traced_batches"])
    try:
        if always or (flops <= MOST_FLOPS and elements <= MOST_ELEMENTS):
            return _compare(graph, checked, batches)
        flops, elements = work(graph, 2 * few)
        if flops <= MOST_FLOPS_OF_FEW and elements <= MOST_ELEMENTS_OF_FEW:
            return _compare(graph, checked, [few, few], exactly=False)
    except _Unable as reason:
        if always:
            raise ExportError(f"check: {reason}") from reason
        return f"not checked against PyTorch: {reason}"
    found = {
        True: "; a second step is traced as the first",
        False: "; what forward keeps in attributes makes a second step run other operators",
        None: "",
    }
    return (
        f"not checked against PyTorch: {flops:.2g} operations and {elements:.2g} elements of two steps "
        f"of {few} samples are more than a few seconds{found[second_alike()]}; --check (check=True) "
        "compares all the same"
    )


def _compare(graph: dict, checked: Checked, batches: list[int], exactly: bool = True) -> str:
    """`exactly`: in float64, if the model can be run in it."""
    done = f"equal to PyTorch at batches {batches[0]} and {batches[1]}"
    if batches[0] == batches[1]:
        done = f"equal to PyTorch in two steps of {batches[0]} samples"
    drawn = {op["op"] for op in graph["ops"]} & BY_COUNTER
    aside = "" if checked.dropout else ", without dropout"
    if any(_drops(op) for op in graph["ops"]):
        aside = ", dropout keeping every element"
    if drawn - {"aten.native_dropout.default"}:
        aside += ", numbers in place of random ones"
    exact = None
    try:
        if not exactly:
            raise _Unable
        _run_both(_in_double(graph, graph["dtype"]), checked, batches, torch.float64)
        return f"{done}, in float64{aside}"
    except _Computes as difference:
        exact = difference
    except _Differs as difference:
        raise _refusal(difference) from difference
    except _Unable:
        # A model may insist on its own precision.
        if exactly and graph["dtype"] == "float64":
            raise
    try:
        _run_both(graph, checked, batches, getattr(torch, graph["dtype"]))
    except _Differs as difference:
        raise _refusal(exact or difference) from difference
    except _Unable as reason:
        if exact is None:
            raise
        raise ExportError(f"{exact}; and in its own precision: {reason}") from reason
    return f"{done}, in its own precision without the updated parameters{aside}"


def _drops(op: dict) -> bool:
    if op["op"] == attention_reference.FORWARD:
        return len(op["args"]) > 3 and op["args"][3] != 0
    return op["op"] == "aten.native_dropout.default"


def _refusal(difference: _Differs) -> ExportError:
    return ExportError(
        f"{difference}; the graph would train something else. Please report this; --no-check "
        "(check=False) writes it nevertheless"
    )


def check_batches(traced: list[int], holds: list) -> list[int]:
    """An odd and an even batch size at which the step was not traced, and holds; of what it does not
    hold for there may be none, and then of those that were traced."""
    least = max(min(traced), 4)
    free = [b for b in range(least, least + 100) if b not in traced and holds_at(holds, b)]
    free = free or sorted(traced)
    odd = next((b for b in free if b % 2), free[0])
    return [odd, next((b for b in free if b % 2 == 0 and b > odd), odd)]


def work(graph: dict, batch: int) -> tuple[float, float]:
    """Floating-point operations of a step, and elements of all its tensors."""
    with torch.device("meta"):
        tensors = [torch.empty(shape_of(t, batch), dtype=dtype_of(t)) for t in graph["tensors"]]
    setting = Setting(batch, batch, torch.device("meta"))
    flops = 0.0
    for op in graph["ops"]:
        count = flop_registry.get(operator_of(op["op"]).overloadpacket)
        if count is None:
            continue
        args = resolve(op["args"], tensors, setting)
        kwargs = {k: resolve(v, tensors, setting) for k, v in op.get("kwargs", {}).items()}
        results = [None if t is None else tensors[t] for t in op["outputs"]]
        out = results[0] if len(results) == 1 else results
        flops += count(*args, **kwargs, out_val=out)
    return flops, float(sum(t.numel() for t in tensors))


def _in_double(value, own: str, narrow=_NARROW):
    """The same graph with float64 for every narrower float; in the update only for the model's own,
    `own`, and for float32: what an optimizer rounds to less it does in any precision."""
    if isinstance(value, dict):
        tensor = "role" in value
        if value.get("phase") == "update" or value.get("role") == "optimizer_state":
            narrow = (own, "float32")
        return {
            k: _wide(v, narrow) if tensor and k == "dtype" else _in_double(v, own, narrow)
            for k, v in value.items()
        }
    if isinstance(value, list):
        return [_in_double(item, own, narrow) for item in value]
    if isinstance(value, str) and value[:1] == ":":
        return f":{_wide(value[1:], narrow)}"
    return value


def _wide(name: str, narrow) -> str:
    return "float64" if name in narrow and name in _NARROW else name


class _Eager:
    """PyTorch's own training of a copy of the model."""

    def __init__(self, checked: Checked, dtype: torch.dtype):
        self.checked = checked
        self.dtype = dtype
        try:
            self.model = _copy(checked.model).to("cpu")
        except Exception as error:
            raise _Unable(f"the model cannot be copied: {_brief(error)}") from error
        if dtype == torch.float64:
            _make_double(self.model)
        self.parameters = dict(self.model.named_parameters())
        self.optimizer = self._optimizer()
        self.lr = self.optimizer.param_groups[0]["lr"]
        self.names = set(self._held())  # what forward keeps beside it is no part of the step

    def _optimizer(self) -> torch.optim.Optimizer:
        """A new one of the same kind, over the copy's parameters."""
        update = self.checked.update
        plain = {"lr": None, "foreach": None, "fused": None, "capturable": False}
        groups, state = [], {}
        for group in update.groups:
            options = {k: plain.get(k, v) for k, v in group.options.items()}
            options["lr"] = float(group.options["lr"])
            # A used optimizer has counted already.
            for name in group.names[:1]:
                counts = update.forms[name].group_counts
                options |= {key: count.start for key, count in counts.items()}
            members = [self.parameters[name] for name in group.names]
            groups.append(options | {"params": members})
            state |= {p: first_state(update.optimizer, options, p) for p in members}
        made = stand_in(update.optimizer, groups)
        for parameter, entries in state.items():
            if entries:
                made.state[parameter] = entries
        return made

    def _held(self) -> dict[str, torch.Tensor]:
        held = dict(self.parameters) | dict(self.model.named_buffers())
        for path, module in self.model.named_modules():
            for attribute, value in vars(module).items():
                if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
                    held[f"{path}.{attribute}" if path else attribute] = value
        return held

    def values(self) -> dict[str, torch.Tensor]:
        """All that outlives a step, by its name in the graph."""
        held = {name: value for name, value in self._held().items() if name in self.names}
        for name, form in self.checked.update.forms.items():
            state = self.optimizer.state.get(self.parameters[name], {})
            for kept in form.kept:
                if kept.name in state:
                    value = state[kept.name]
                    if not isinstance(value, torch.Tensor):
                        value = torch.tensor(value, dtype=torch.float64)
                    held[f"{name}/{kept.name}"] = value
        return {name: value.detach().clone() for name, value in held.items()}

    def _copies(self, masters: Masters | None) -> dict[str, torch.Tensor]:
        if masters is None:
            return {}
        named = self.parameters.items()
        return {name: p.to(masters.compute) for name, p in named if is_master(p)}

    def step(self, inputs: list[torch.Tensor]) -> tuple[torch.Tensor, dict, dict]:
        """The loss, the gradients by parameter, and the outputs beside the loss by name."""
        own = self.dtype != torch.float64
        drops = self.checked.dropout
        self.optimizer.zero_grad()
        try:
            with (
                FixedDraws(drops),
                contextlib.nullcontext() if drops else without_dropout(self.model),
                in_one_process(),
            ):
                masters = self.checked.masters if own else None
                with (
                    autocast(self.checked.autocast if own else None),
                    _reparametrize_module(self.model, self._copies(masters), tie_weights=True),
                    inputs_narrowed(self.model, masters),
                ):
                    loss, beside = loss_and_outputs(self.checked.loss_fn(self.model, *inputs))
                beside = {name: value.clone() for name, value in beside.items()}
                loss.backward()
            gradients = {
                name: parameter.grad.detach().clone()
                for name, parameter in self.parameters.items()
                if parameter.grad is not None
            }
            norms = [torch.linalg.vector_norm(gradient.double()) for gradient in gradients.values()]
            beside[GRADIENT_NORM] = torch.linalg.vector_norm(torch.stack(norms))
            if self.checked.clip_norm is not None:
                torch.nn.utils.clip_grad_norm_(self.parameters.values(), self.checked.clip_norm)
            self.optimizer.step()
        except Exception as error:
            raise _Unable(f"PyTorch's own step stops at {_brief(error)}") from error
        return loss.detach(), gradients, beside


def _copy(model) -> torch.nn.Module:
    if not isinstance(model, torch.nn.Module):
        model = model()  # which may be one that is in use
    made = copy.deepcopy(model)
    # Copies of parameters come without their hooks.
    copies = dict(made.named_parameters())
    for name, parameter in model.named_parameters():
        for hook in (parameter._backward_hooks or {}).values():
            copies[name].register_hook(hook)
    return made


def _make_double(model: torch.nn.Module) -> None:
    model.double()
    for module in model.modules():
        for attribute, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                setattr(module, attribute, value.double())


def _run_both(graph: dict, checked: Checked, batches: list[int], dtype: torch.dtype) -> None:
    """Two steps, each from what PyTorch has; raises at the first tensor that differs."""
    default = torch.get_default_dtype()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        eager = _Eager(checked, dtype)
        try:
            if dtype == torch.float64:
                torch.set_default_dtype(dtype)
            for number, batch in enumerate(batches, 1):
                torch.manual_seed(number)
                with _default(default):
                    inputs = checked.make_inputs(batch)
                if dtype == torch.float64:
                    inputs = [x.double() if x.is_floating_point() else x for x in inputs]
                _one_step(graph, eager, list(inputs), batch, number)
        finally:
            torch.set_default_dtype(default)


@contextlib.contextmanager
def _default(dtype: torch.dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _one_step(graph: dict, eager: _Eager, inputs: list, batch: int, number: int) -> None:
    tensors = graph["tensors"]
    before = eager.checked.constants | eager.values()
    values = {}
    for entry in tensors:
        if entry["role"] in ("parameter", "buffer", "optimizer_state"):
            name, form = entry["name"], dtype_of(entry)
            values[name] = before[name].to(form) if name in before else state_from_file(entry)
    given = dict(zip(eager.checked.names, [x.detach().clone() for x in inputs], strict=True))
    momentum = momentum_of(eager.optimizer.param_groups[0])
    given = given_values(graph, values, given, lr=eager.lr, step=number, momentum=momentum)
    loss, gradients, beside = eager.step(inputs)
    after = eager.values()
    instead = fixed_operators(eager.checked.dropout)
    instead |= attention_reference.operators(attention_reference.all_kept)
    scale = values.get(SCALE, 1)
    own: dict[int, torch.Tensor] = {}  # the graph's gradients by place
    # The update goes on with PyTorch's gradients: what is no more than rounding of one that is
    # nearly 0 becomes much more where an optimizer divides by it.
    theirs = {}
    for place, entry in enumerate(tensors):
        if entry["role"] == "gradient":
            name = tensors[entry["of"]]["name"]
            if name not in gradients:
                raise _Computes(f"at batch {batch} PyTorch gives {name} no gradient")
            theirs[place] = gradients[name].to(dtype_of(entry)) * scale

    def observe(place: int, value: torch.Tensor) -> None:
        if place in theirs:
            own[place] = value

    try:
        found = run(graph, given, batch, instead=instead, observe=observe, go_on_with=theirs)
    except Exception as error:
        raise _Computes(f"at batch {batch} the exported step stops at {_brief(error)}") from error

    comparison = _Comparison(batch, _tolerance(eager), _Computes)
    comparison.add("the loss", found[graph["loss"]], loss)
    for place, value in own.items():
        name = tensors[tensors[place]["of"]]["name"]
        comparison.add(f"the gradient of {name}", value / scale, gradients[name])
    comparison.end()
    if eager.dtype == torch.float64:  # in others a label may be the likeliest by rounding
        for name, place in outputs_of(graph).items():
            comparison = _Comparison(batch, _tolerance(eager), _Computes)
            comparison.add(f"the output {name}", found[place], beside[name])
            comparison.end()
    comparison = _Comparison(batch, _tolerance(eager), _Differs)
    left = {tensors[t["replaces"]]["name"]: v for t, v in zip(tensors, found) if "replaces" in t}
    kinds = {t["name"]: t["role"] for t in tensors}
    for name, value in after.items():
        kind = kinds.get(name, "buffer")
        if kind != "buffer" and eager.dtype != torch.float64:
            continue
        expected = left.get(name, before.get(name))
        if expected is not None:
            comparison.add(f"{kind.replace('_', ' ')} {name} after the step", expected, value)
    comparison.end()


def _tolerance(eager: _Eager) -> float:
    double = eager.dtype == torch.float64
    masters = eager.checked.masters
    narrow = eager.checked.autocast or (masters and masters.compute)
    return _TOLERANCE[eager.dtype if double else narrow or eager.dtype]


class _Comparison:
    """Collects pairs of one kind; those near 0 are measured by the largest of them."""

    def __init__(self, batch: int, tolerance: float, failure: type[_Differs]):
        self._batch = batch
        self._tolerance = tolerance
        self._failure = failure
        self._pairs: list[tuple] = []

    def add(self, what: str, found: torch.Tensor, expected: torch.Tensor) -> None:
        if found.shape != expected.shape:
            raise self._failure(
                f"at batch {self._batch} {what} has shape {list(found.shape)}, PyTorch's "
                f"{list(expected.shape)}"
            )
        self._pairs.append((what, found.detach().double(), expected.detach().double()))

    def end(self) -> None:
        largest = max((_size(expected) for _, _, expected in self._pairs), default=0.0)
        for what, found, expected in self._pairs:
            # NaN and infinities are the same, or different without measure.
            alike = (found == expected) | (found.isnan() & expected.isnan())
            error = torch.where(alike, 0.0, found - expected).abs()
            error = error.max().item() if error.numel() else 0.0
            limit = self._tolerance * max(_size(expected), 1e-3 * largest)
            if not error <= limit:
                raise self._failure(
                    f"at batch {self._batch} {what} is {error:.2g} off PyTorch's, whose largest "
                    f"element is {_size(expected):.2g}"
                )


def _size(tensor: torch.Tensor) -> float:
    """The largest finite element."""
    finite = tensor.nan_to_num(0.0, 0.0, 0.0).abs()
    return finite.max().item() if finite.numel() else 0.0


def _brief(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
