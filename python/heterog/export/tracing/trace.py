"""Traces loss and gradients at one batch size into a functional FX graph of ATen operators.

Forward and gradient are recorded as they run, in-place writes included, with each node's phase, module
and autograd sequence number. Writes are then removed (writes.py); where that is not simple, by a
second pass, which records the first through functionalisation and keeps views as views.
"""

import contextlib
import logging
from dataclasses import dataclass, field, replace

import torch
import torch.fx.traceback as fx_traceback
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils.stateless import _reparametrize_module

from heterog.base.errors import ExportError, unexpected
from heterog.export.graph.diagnosis import explain
from heterog.export.graph.ir import SCALE
from heterog.export.graph.outputs import loss_and_outputs
from heterog.export.graph.recorder import Recorder
from heterog.export.graph.refusals import written
from heterog.export.graph.writes import without_writes, writes
from heterog.export.operators.attention import attention_as
from heterog.export.operators.autocast import autocast
from heterog.export.operators.batch_norm import cumulative_averages, in_one_process
from heterog.export.operators.decompositions import decomposition_table, recurrent_dropout
from heterog.export.operators.draws import DrawsNumbered
from heterog.export.state.python_state import PythonState
from heterog.export.tracing.assertions import Answers
from heterog.export.tracing.constants import lift_constants, same_values
from heterog.export.tracing.data_dependent import Decisions, OpenDecision
from heterog.export.tracing.masters import Masters, inputs_narrowed, is_master
from heterog.export.tracing.python_draws import python_draws
from heterog.export.tracing.symbolic_batch import SymbolicBatch


@dataclass(frozen=True)
class Slot:
    """One input of the traced function, in order. A name may occur once in each role."""

    name: str
    role: str  # input, parameter, buffer, constant (made of numbers while the step runs)


@dataclass
class Result:
    """One output of the traced function, in order."""

    # loss, output (beside it), gradient, next (of a buffer), written (a parameter as forward leaves it)
    kind: str
    of: Slot | None = None
    name: str = ""  # of an output


@dataclass
class Trace:
    """A functional graph at one batch size, with what its ends mean."""

    batch: int
    graph: torch.fx.Graph
    module: torch.fx.GraphModule
    slots: list[Slot]
    results: list[Result]
    raw: torch.fx.Graph | None = None  # as recorded, with what is written in place
    how: "How | None" = None


@dataclass
class StepSpec:
    """All that is traced, whatever the batch size."""

    model: torch.nn.Module
    loss_fn: object
    autocast: torch.dtype | None
    trained: list[str]  # names of parameters that the optimizer changes
    held: dict[str, torch.Tensor]  # buffers, frozen parameters, tensors kept as plain attributes
    attributes: dict[str, tuple[torch.nn.Module, str]] = field(default_factory=dict)
    decompositions: dict = field(default_factory=dict)  # beside those that every step gets
    attention: str = "one"  # operator, or "math": written out
    dropout: bool = True
    scaled: bool = False  # the loss, by the buffer loss_scale/scale, before it is differentiated
    masters: Masters | None = None  # parameters are computed with in half precision
    exact: bool = False  # batch normalisation, by the statistics of the whole batch
    python: PythonState | None = None  # what the step reads of Python is watched
    distances: list[bool] = field(default_factory=list)  # how each is computed (written_out.py)


@dataclass(frozen=True)
class TraceCall:
    """What is traced at one batch size. `cast`: tensor → dtype given to it."""

    spec: StepSpec
    batch: int
    inputs: tuple
    names: list[str]  # of the inputs
    cast: object


@dataclass(frozen=True)
class How:
    """How a trace answers what Python asks."""

    outcome: bool | None = None  # of open branches on random numbers; None: an OpenDecision
    answers: Answers | None = None  # to questions about data
    compiling: bool = True  # models are told that they are traced
    symbolic: SymbolicBatch | None = None  # sizes follow a symbol
    second: bool = False  # the step after one whose attributes the model has kept


class WithoutGradient(Exception):
    """Parameters that the loss does not depend on."""

    def __init__(self, names: list[str]):
        super().__init__(names)
        self.names = names


class _SecondPass(torch.fx.Interpreter):
    """Runs the first pass's graph again, handing each node's annotation on."""

    def run_node(self, node):
        custom = node.meta.get("custom")
        if custom is not None:
            fx_traceback.current_meta["custom"] = custom
        args, kwargs = self.fetch_args_kwargs_from_env(node)
        return getattr(self, node.op)(node.target, args, kwargs)


def fake_like(mode: FakeTensorMode, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A tensor without values, on the CPU, with the sizes and strides of another."""
    with mode:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=dtype, device="cpu")


def trace_once(call: TraceCall, recorder: Recorder, how: How) -> Trace:
    """Loss, gradients and next buffers at one batch size."""
    spec, batch = call.spec, call.batch
    symbolic = how.symbolic
    mode = FakeTensorMode(allow_non_fake_inputs=True) if symbolic is None else symbolic.mode
    decisions = Decisions(mode, how.outcome, how.answers, spec.distances)
    slots: list[Slot] = []
    arguments: list[torch.Tensor] = []

    def add(slot: Slot, tensor: torch.Tensor, dtype: torch.dtype) -> None:
        slots.append(slot)
        arguments.append(fake_like(mode, tensor, dtype))

    cast = call.cast
    for place, (name, tensor) in enumerate(zip(call.names, call.inputs, strict=True)):
        if symbolic is None:
            add(Slot(name, "input"), tensor, cast(tensor))
        else:
            slots.append(Slot(name, "input"))
            arguments.append(symbolic.input(place, cast(tensor)))
    parameters = dict(spec.model.named_parameters())
    for name in spec.trained:
        add(Slot(name, "parameter"), parameters[name], cast(parameters[name]))
    for name, tensor in spec.held.items():
        add(Slot(name, "buffer"), tensor, cast(tensor))
    if spec.scaled:
        add(Slot(SCALE, "buffer"), torch.empty(()), torch.float32)

    results: list[Result] = []

    # What the first of two steps changes in Python is put back after the second.
    inner = replace(spec, python=None) if how.second else spec

    def step(*flat, kept=None):
        kept = kept or _same_attributes(spec.model)
        return _step(inner, slots, flat, recorder, results, decisions, how.compiling, kept)

    table = decomposition_table() | spec.decompositions
    try:
        with (
            fx_traceback.preserve_node_meta(),
            enable_python_dispatcher(),
            _without_log(),
            contextlib.nullcontext() if symbolic is None else symbolic.watched(),
            _same_attributes(spec.model) if how.second else contextlib.nullcontext(),
            spec.python.watched() if how.second and spec.python else contextlib.nullcontext(),
        ):
            recorder.write()
            if how.second:
                with mode:
                    step(*arguments, kept=contextlib.nullcontext())
            first = _make_fx(step, table)(*arguments)
    except (ExportError, OpenDecision, WithoutGradient):
        raise
    except Exception as error:
        raise explain(error, recorder, spec.model) from error
    finally:
        fx_traceback.current_meta.clear()
    _check_renormalised(first.graph)
    first.graph.eliminate_dead_code()
    for node in first.graph.nodes:
        custom = node.meta.get("custom")
        if custom is not None and custom["phase"] == "forward":
            node.meta["custom"] = custom | {"sequence": node.meta.get("seq_nr")}
    constants = lift_constants(first)
    for number, value in enumerate(constants):
        slots.append(Slot(f"constant_{number}", "constant"))
        # Its numbers matter no more, and a real tensor among fake ones is computed with.
        arguments.append(fake_like(mode, value, value.dtype))
    raw = _with_constants(
        Trace(batch, first.graph, first, slots, results, first.graph, how), constants
    )
    if symbolic is not None or not any(writes(node) for node in first.graph.nodes):
        return raw
    copied = without_writes(first, mode)
    if copied is not None:
        return _with_constants(replace(raw, graph=copied.graph, module=copied), constants)

    def again(*flat):
        return _SecondPass(first).run(*flat, enable_io_processing=False)

    try:
        with fx_traceback.preserve_node_meta(), torch.no_grad(), mode:
            functional = torch.func.functionalize(again, remove="mutations")
            second = _make_fx(functional, table)(*arguments)
    except Exception as error:
        raise unexpected("in-place writes", error) from error
    finally:
        fx_traceback.current_meta.clear()
    return _with_constants(replace(raw, graph=second.graph, module=second), constants)


def _with_constants(trace: Trace, constants: list[torch.Tensor]) -> Trace:
    """Notes the values of constants at their placeholders, the last ones."""
    places = [node for node in trace.graph.nodes if node.op == "placeholder"]
    for node, value in zip(places[len(places) - len(constants) :], constants, strict=True):
        node.meta["constant"] = value
    return trace


def same_trace(one: Trace, other: Trace) -> bool:
    """Whether two traces at one batch size run the same operators, with the same numbers."""
    made = [
        [n.meta["constant"] for n in trace.graph.nodes if "constant" in n.meta]
        for trace in (one, other)
    ]
    return (
        one.module.code == other.module.code
        and len(made[0]) == len(made[1])
        and all(map(same_values, *made))
    )


def _check_renormalised(graph: torch.fx.Graph) -> None:
    for node in graph.nodes:
        if node.op == "call_function" and "embedding_renorm" in str(node.target):
            scope = (node.meta.get("custom") or {"scope": ""})["scope"]
            where = f"module {scope}" if scope else "the model"
            raise ExportError(
                f"{where}: an embedding with max_norm scales rows of its weight while it looks them "
                "up, which the graph of a step cannot say; leave max_norm out"
            )


def _make_fx(function, table):
    """make_fx, but for the text of the graph: it is written only where somebody asks for it."""
    made = make_fx(function, decomposition_table=table, _disable_torch_fn_metadata_mode=True)

    def lazily(*arguments):
        with _use_lazy_graph_module(True):
            return made(*arguments)

    return lazily


def _step(spec, slots, flat, recorder, results, decisions, compiling, kept):
    """The function that is traced: loss, gradients, next buffers. `kept`: around it, what becomes of
    attributes that the model changes."""
    # A copy of each, so that in-place writes never reach the arguments themselves.
    values = dict(zip(slots, flat, strict=True))
    inputs = [tensor for slot, tensor in values.items() if slot.role == "input"]
    params = {
        name: values[Slot(name, "parameter")].detach().clone().requires_grad_()
        for name in spec.trained
    }
    held = {name: values[Slot(name, "buffer")].clone() for name in spec.held}
    frozen = {n: held[n] for n, p in spec.model.named_parameters() if n in held}
    copies = _copies(spec, params | frozen, recorder)
    computed = params | {name: copies[name] for name in params if name in copies}
    for name, parameter in spec.model.named_parameters():
        if name in params:
            for hook in (parameter._backward_hooks or {}).values():
                computed[name].register_hook(hook)

    in_module = computed | {n: t for n, t in held.items() if n not in spec.attributes} | copies
    draws = DrawsNumbered(recorder.set_draw, lambda: recorder.stack[-1] if recorder.stack else "")
    with (
        draws,
        draws.states(),
        _compiling() if compiling else contextlib.nullcontext(),
        kept,
        _reparametrize_module(spec.model, in_module, tie_weights=True),
        _replaced_attributes(spec, held),
        recorder.modules(spec.model),
        sdpa_kernel(SDPBackend.MATH),
        attention_as(spec.attention, spec.dropout),
        _without_libraries_of_cpus(),
        recurrent_dropout(),
        in_one_process(),
        cumulative_averages(spec.exact),
    ):
        with (
            autocast(spec.autocast),
            inputs_narrowed(spec.model, spec.masters),
            spec.python.watched() if spec.python else contextlib.nullcontext(),
            python_draws(decisions),
            decisions,
        ):
            loss, beside = loss_and_outputs(spec.loss_fn(spec.model, *inputs))
        _check_loss(loss)
        for name, copy in copies.items():
            if copy._version > 0:  # and would be lost
                raise written(name)
        recorder.stack.clear()
        recorder.write()
        start = loss * values[Slot(SCALE, "buffer")] if spec.scaled else loss
        recorder.set_phase("backward")
        recorder.follow_backward(start)
        grads = torch.autograd.grad(start, list(computed.values()), allow_unused=True)
        missing = [name for name, grad in zip(params, grads, strict=True) if grad is None]
        if missing:
            raise WithoutGradient(missing)
        if spec.masters is not None:
            grads = [
                _reduced(spec.masters, name, grad, recorder) if name in copies else grad
                for name, grad in zip(params, grads, strict=True)
            ]

    results.clear()
    results.append(Result("loss"))
    outputs = [loss.detach()]
    for name, value in beside.items():
        results.append(Result("output", name=name))
        outputs.append(value)
    for name, grad in zip(params, grads, strict=True):
        if grad.layout != torch.strided:
            raise ExportError(
                f"parameter {name} gets a sparse gradient; build its embedding with sparse=False"
            )
        results.append(Result("gradient", Slot(name, "parameter")))
        outputs.append(grad)
    for name, parameter in params.items():
        results.append(Result("written", Slot(name, "parameter")))
        outputs.append(parameter.detach())
    for name in held:
        results.append(Result("next", Slot(name, "buffer")))
        stays = name in spec.attributes or name in copies
        outputs.append(_next(name, held[name] if stays else in_module[name]))
    return outputs


def _copies(spec: StepSpec, parameters: dict, recorder: Recorder) -> dict[str, torch.Tensor]:
    """Of all masters, in half precision; nothing where parameters are computed with as they are."""
    if spec.masters is None:
        return {}
    copies = {}
    for name, parameter in parameters.items():
        if not is_master(parameter):
            continue
        with recorder.within(name.rpartition(".")[0]):
            copies[name] = parameter.detach().to(spec.masters.compute)
        copies[name].requires_grad_(parameter.requires_grad)
    return copies


def _reduced(masters: Masters, name: str, gradient, recorder: Recorder) -> torch.Tensor:
    with recorder.within(name.rpartition(".")[0]):
        return gradient.to(masters.reduce)


def _next(name: str, value) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise ExportError(
            f"buffer {name}: the step leaves {type(value).__name__} in its place; a buffer stays a "
            "tensor of the same shape and dtype"
        )
    return value.detach()


@contextlib.contextmanager
def _same_attributes(model: torch.nn.Module):
    """Takes back what forward keeps in plain attributes: counters, masks made at the first call."""
    kept = [
        (place, dict(place))
        for module in model.modules()
        for place in (vars(module), module._buffers, module._parameters)
    ]
    try:
        yield
    finally:
        for place, before in kept:
            place.clear()
            place.update(before)


@contextlib.contextmanager
def _without_libraries_of_cpus():
    """With oneDNN recurrent layers in single precision would become a kernel that CPUs alone have;
    NNPACK is taken from batch 16 on, and may leave its results in another order in memory."""
    before = torch._C._get_mkldnn_enabled()
    try:
        torch._C._set_mkldnn_enabled(False)
        with torch.backends.nnpack.flags(enabled=False):
            yield
    finally:
        torch._C._set_mkldnn_enabled(before)


@contextlib.contextmanager
def _without_log():
    """Where a model stops, PyTorch logs its own frames at every call; what is raised says it."""
    loggers = [logging.getLogger(f"torch.{name}") for name in _LOGGERS]
    before = [logger.disabled for logger in loggers]
    try:
        for logger in loggers:
            logger.disabled = True
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


_LOGGERS = ("_subclasses.fake_tensor", "fx.experimental.symbolic_shapes")


@contextlib.contextmanager
def _compiling():
    """Tells models that they are traced, so that they skip shortcuts that read values."""
    before = torch.compiler._is_compiling_flag
    try:
        torch.compiler._is_compiling_flag = True
        yield
    finally:
        torch.compiler._is_compiling_flag = before


@contextlib.contextmanager
def _replaced_attributes(spec: StepSpec, held: dict):
    originals = {}
    try:
        for name, (module, attribute) in spec.attributes.items():
            originals[name] = getattr(module, attribute)
            setattr(module, attribute, held[name])
        yield
    finally:
        for name, tensor in originals.items():
            module, attribute = spec.attributes[name]
            held[name] = getattr(module, attribute)
            setattr(module, attribute, tensor)


def _check_loss(loss) -> None:
    if not isinstance(loss, torch.Tensor):
        raise ExportError(
            f"loss_fn returned {type(loss).__name__}; it must return a tensor with one element"
        )
    if loss.dim() != 0:
        raise ExportError(
            f"loss_fn returned a tensor of shape {list(loss.shape)}; it must return a scalar (take "
            "its mean or sum)"
        )
    if not loss.is_floating_point() or loss.grad_fn is None:
        raise ExportError(
            "loss_fn returned a loss that no parameter leads to; compute it from the model's "
            "output, outside torch.no_grad()"
        )
