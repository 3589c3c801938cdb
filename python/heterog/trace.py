"""Traces loss and gradients at one batch size into a functional FX graph of ATen operators.

Forward and gradient are recorded as they run, in-place writes included, with each node's phase, module
and autograd sequence number. Writes are then removed (writes.py); where that is not simple, by a
second pass, which records the first through functionalisation and keeps views as views.
"""

import contextlib
import os
import traceback
from dataclasses import dataclass, field

import torch
import torch.fx.traceback as fx_traceback
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils.stateless import _reparametrize_module

from heterog.attention import attention_as
from heterog.autocast import autocast
from heterog.constants import lift_constants
from heterog.decisions import Decisions, OpenDecision
from heterog.decompositions import decomposition_table, recurrent_dropout
from heterog.dropout import RATES
from heterog.draws import DrawsNumbered
from heterog.errors import ExportError, unexpected
from heterog.ir import SCALE
from heterog.writes import without_writes, writes


@dataclass(frozen=True)
class Slot:
    """One input of the traced function, in order. A name may occur once in each role."""

    name: str
    role: str  # input, parameter, buffer, constant (made of numbers while the step runs)


@dataclass
class Result:
    """One output of the traced function, in order."""

    kind: str  # loss, gradient, next (of a buffer), written (a parameter as forward leaves it)
    of: Slot | None = None


@dataclass
class Trace:
    """A functional graph at one batch size, with what its ends mean."""

    batch: int
    graph: torch.fx.Graph
    module: torch.fx.GraphModule
    slots: list[Slot]
    results: list[Result]


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


class WithoutGradient(Exception):
    """Parameters that the loss does not depend on."""

    def __init__(self, names: list[str]):
        super().__init__(names)
        self.names = names


class _Recorder:
    """Keeps the annotation that each traced node gets: phase, module path, sequence number."""

    def __init__(self):
        self.stack: list[str] = []
        self.phase = "forward"
        self.sequence: int | None = None
        self.draw: int | None = None

    def write(self) -> None:
        fx_traceback.current_meta["custom"] = {
            "phase": self.phase,
            "scope": self.stack[-1] if self.stack else "",
            "sequence": self.sequence,
            "draw": self.draw,
        }

    def set_draw(self, number: int | None) -> None:
        self.draw = number
        self.write()

    def set_phase(self, phase: str) -> None:
        self.phase = phase
        self.write()

    @contextlib.contextmanager
    def modules(self, model: torch.nn.Module):
        """Follows which module runs, by hooks on every module of the model."""
        paths = {id(module): path for path, module in model.named_modules()}

        def enter(module, _args):
            self.stack.append(paths[id(module)])
            self.write()

        def leave(_module, _args, _output):
            self.stack.pop()
            self.write()

        handles = []
        for module in model.modules():
            handles.append(module.register_forward_pre_hook(enter, prepend=True))
            handles.append(module.register_forward_hook(leave))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def follow_backward(self, loss: torch.Tensor) -> None:
        """Notes, while a backward function runs, the sequence number of its forward operator."""
        seen = set()
        pending = [loss.grad_fn]
        while pending:
            node = pending.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            pending.extend(successor for successor, _ in node.next_functions)

            def before(_grads, number=node._sequence_nr()):
                self.sequence = number
                self.write()

            def after(_inputs, _outputs):
                self.sequence = None
                self.write()

            node.register_prehook(before)
            node.register_hook(after)


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


def trace_gradients(spec: StepSpec, batch: int, inputs: tuple, names: list[str], cast) -> Trace:
    """Loss, gradients and next buffers at one batch size. `cast`: tensor → dtype given to it.

    Where Python branches on a random number, both ways are traced; they must run the same.
    """
    recorder = _Recorder()
    try:
        return _trace(spec, batch, inputs, names, cast, recorder, None)
    except OpenDecision as decision:
        where, module = place_of(decision, recorder, spec.model)
        refusal = ExportError(
            f"{where}: a branch on a random number decides which operators a step runs; set "
            f"{_rate_of(spec.model, module)} to 0, or put the module in eval()"
        )
    try:
        ways = [
            _trace(spec, batch, inputs, names, cast, _Recorder(), outcome)
            for outcome in (False, True)
        ]
    except ExportError as error:
        raise refusal from error
    if ways[0].module.code != ways[1].module.code:
        raise refusal
    return ways[0]


def _rate_of(model: torch.nn.Module, path: str) -> str:
    """The setting of a module, or of the nearest one around it, that looks like such a rate."""
    while True:
        module = model.get_submodule(path)
        for place in (module, getattr(module, "config", None)):
            for name in RATES:
                value = getattr(place, name, None)
                if isinstance(value, float) and value > 0:
                    return f"{name} of {type(module).__name__} (now {value})"
        if not path:
            return "its rate"
        path = path.rpartition(".")[0]


def _trace(spec, batch, inputs, names, cast, recorder, outcome) -> Trace:
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    decisions = Decisions(mode, outcome)
    slots: list[Slot] = []
    arguments: list[torch.Tensor] = []

    def add(slot: Slot, tensor: torch.Tensor, dtype: torch.dtype) -> None:
        slots.append(slot)
        arguments.append(fake_like(mode, tensor, dtype))

    for name, tensor in zip(names, inputs, strict=True):
        add(Slot(name, "input"), tensor, cast(tensor))
    parameters = dict(spec.model.named_parameters())
    for name in spec.trained:
        add(Slot(name, "parameter"), parameters[name], cast(parameters[name]))
    for name, tensor in spec.held.items():
        add(Slot(name, "buffer"), tensor, cast(tensor))
    if spec.scaled:
        add(Slot(SCALE, "buffer"), torch.empty(()), torch.float32)

    results: list[Result] = []

    def step(*flat):
        return _step(spec, slots, flat, recorder, results, decisions)

    table = decomposition_table() | spec.decompositions
    try:
        with fx_traceback.preserve_node_meta(), enable_python_dispatcher():
            recorder.write()
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
    if not any(writes(node) for node in first.graph.nodes):
        return _with_constants(Trace(batch, first.graph, first, slots, results), constants)
    copied = without_writes(first, mode)
    if copied is not None:
        return _with_constants(Trace(batch, copied.graph, copied, slots, results), constants)

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
    return _with_constants(Trace(batch, second.graph, second, slots, results), constants)


def _with_constants(trace: Trace, constants: list[torch.Tensor]) -> Trace:
    """Notes the values of constants at their placeholders, the last ones."""
    places = [node for node in trace.graph.nodes if node.op == "placeholder"]
    for node, value in zip(places[len(places) - len(constants) :], constants, strict=True):
        node.meta["constant"] = value
    return trace


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


def _step(spec, slots, flat, recorder, results, decisions):
    """The function that is traced: loss, gradients, next buffers."""
    # A copy of each, so that in-place writes never reach the arguments themselves.
    values = dict(zip(slots, flat, strict=True))
    inputs = [tensor for slot, tensor in values.items() if slot.role == "input"]
    params = {
        name: values[Slot(name, "parameter")].detach().clone().requires_grad_()
        for name in spec.trained
    }
    held = {name: values[Slot(name, "buffer")].clone() for name in spec.held}
    for name, parameter in spec.model.named_parameters():
        if name in params:
            for hook in (parameter._backward_hooks or {}).values():
                params[name].register_hook(hook)

    in_module = params | {n: t for n, t in held.items() if n not in spec.attributes}
    draws = DrawsNumbered(recorder.set_draw, lambda: recorder.stack[-1] if recorder.stack else "")
    with (
        draws,
        draws.states(),
        _compiling(),
        _same_attributes(spec.model),
        _reparametrize_module(spec.model, in_module, tie_weights=True),
        _replaced_attributes(spec, held),
        recorder.modules(spec.model),
        sdpa_kernel(SDPBackend.MATH),
        attention_as(spec.attention, spec.dropout),
        _without_onednn(),
        recurrent_dropout(),
    ):
        with autocast(spec.autocast), decisions:
            loss = spec.loss_fn(spec.model, *inputs)
        _check_loss(loss)
        recorder.stack.clear()
        recorder.write()
        start = loss * values[Slot(SCALE, "buffer")] if spec.scaled else loss
        recorder.set_phase("backward")
        recorder.follow_backward(start)
        grads = torch.autograd.grad(start, list(params.values()), allow_unused=True)
    missing = [name for name, grad in zip(params, grads, strict=True) if grad is None]
    if missing:
        raise WithoutGradient(missing)

    results.clear()
    results.append(Result("loss"))
    outputs = [loss.detach()]
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
        outputs.append(_next(name, held[name] if name in spec.attributes else in_module[name]))
    return outputs


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
def _without_onednn():
    """Recurrent layers in single precision would become a kernel that CPUs alone have."""
    before = torch._C._get_mkldnn_enabled()
    try:
        torch._C._set_mkldnn_enabled(False)
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


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


def explain(error: Exception, recorder: _Recorder, model: torch.nn.Module) -> ExportError:
    """The one line that a person can act on, from whatever the trace stopped at."""
    where, _ = place_of(error, recorder, model)
    name = type(error).__name__
    reason = str(error).strip().split("\n")[0][:200]
    if "DataDependent" in name or "DynamicOutputShape" in name or "_local_scalar_dense" in reason:
        return ExportError(
            f"{where}: the step reads the value of a tensor (.item(), if, nonzero or a mask as an "
            "index), so its operators depend on the data; compute it with tensors "
            "(torch.where) or take it out of the step"
        )
    return ExportError(f"{where}: {name}: {reason}")


def place_of(error: Exception, recorder: _Recorder, model: torch.nn.Module) -> tuple[str, str]:
    """Where a trace stopped, in words, and the path of the module that ran."""
    where = python_line(error)
    module = recorder.stack[-1] if recorder.stack else ""
    if module:
        where = f"{where} in module {module} ({type(model.get_submodule(module)).__name__})"
    return where, module


def python_line(error: BaseException) -> str:
    """`file.py:12` of the innermost frame that is neither torch's nor the exporter's."""
    here = os.path.dirname(os.path.abspath(__file__))
    packages = os.path.dirname(os.path.dirname(os.path.abspath(torch.__file__)))
    library = None
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = os.path.abspath(frame.filename)
        if path.startswith((os.path.join(packages, "torch") + os.sep, here + os.sep)):
            continue
        if path.startswith((packages + os.sep, os.path.dirname(os.__file__) + os.sep)):
            library = library or f"{os.path.basename(path)}:{frame.lineno}"
            continue
        if not os.path.exists(path):
            continue
        return f"{os.path.basename(path)}:{frame.lineno}"
    return library or "model"
