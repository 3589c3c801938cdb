"""export_training_step: from a PyTorch model to the graph of one whole training step."""

import contextlib
import inspect
import os
from dataclasses import dataclass, field, replace

import torch

import heterog.version
from heterog.batch_norm import batch_norm_decompositions, check_exact
from heterog.check import Checked, check_step
from heterog.clean import clean
from heterog.constants import constant_values
from heterog.dropout import identity_decompositions, without_dropout
from heterog.errors import ExportError, HeterogError, unexpected
from heterog.hints import buffer_values, input_values
from heterog.ir import Step
from heterog.light import light_init
from heterog.loss_scaling import LossScaling, read_scaling
from heterog.merge import merge_traces
from heterog.names import give_names
from heterog.optimizers import Update, describe_optimizer
from heterog.trace import StepSpec, WithoutGradient, python_line, trace_gradients
from heterog.update import add_update
from heterog.writer import dtype_name, to_graph, write_constants, write_graph


@dataclass(frozen=True)
class TrainingStep:
    """An exported step. `graph` is the plain dictionary of docs/formats.md."""

    graph: dict
    checked: str = ""  # what was compared with PyTorch, or why nothing was
    # What the model makes of numbers while it runs, by the names of the buffers that hold it.
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    # Parameters that the loss does not depend on: as in PyTorch, the optimizer passes them over.
    untrained: list[str] = field(default_factory=list)
    update: Update | None = None  # what was found out about the optimizer

    def save(self, path) -> None:
        """Writes `.json.gz`; the same graph gives the same bytes. Constants that are too large for
        it go into a file beside it (`heterog.writer.read_constants`)."""
        write_constants(self.graph, self.constants, path)
        write_graph(self.graph, path)


@dataclass(frozen=True)
class Options:
    """How a step is exported; export_training_step says what each means."""

    dropout: bool
    double: bool
    autocast: torch.dtype | None
    clip_norm: float | None
    exact: bool  # batch normalisation
    attention: str
    scaling: LossScaling | None
    fused: bool  # the update


def export_training_step(
    model,
    make_inputs,
    loss_fn,
    optimizer,
    name: str,
    *,
    batches=None,
    batch: int | None = None,
    dropout: bool = True,
    double: bool = False,
    autocast: str | None = None,
    clip_norm: float | None = None,
    batch_norm: str = "per-slice",
    attention: str = "one",
    momentum_input: bool = False,
    fused_update: bool = True,
    loss_scaling: "LossScaling | dict | bool | None" = None,
    check: bool | None = None,
) -> TrainingStep:
    """Exports forward, backward and update of one training step.

    model        an nn.Module, each of its modules in the mode (train, eval) in which it is to train;
                 or a function without arguments that builds one: then its large weights are never
                 allocated
    make_inputs  batch size → tuple of tensors
    loss_fn      (model, *inputs) → scalar tensor
    optimizer    any torch.optim.Optimizer whose step() computes with tensors and takes no closure,
                 or a function parameters → optimizer
    batches      the batch sizes to trace at: three or more, each at least 2. The graph holds from
                 the smallest on. By default 2, 3 and 64, or where those do not agree 4, 5 and 64
    batch        with the default `batches`, a size at which the step will run, in place of 64
    dropout      False: as if every dropout rate were 0
    double       parameters and floating inputs in float64
    autocast     "bfloat16" or "float16": the forward pass and the loss under torch.autocast
    loss_scaling  a LossScaling, or a dict of its fields: the loss is scaled as
                 torch.amp.GradScaler does, inside the step. None: with float16 alone. False: never
    clip_norm    gradients are scaled to at most this global 2-norm before the update
    batch_norm   "exact": batch normalisation in training mode takes the statistics of the whole
                 batch however it is sliced, at the price of four small all-reduces for each;
                 "per-slice": those of each slice, as data parallelism elsewhere
    attention    "one": scaled_dot_product_attention is one operator, forward and backward, whose
                 scores are never kept; "math": written out
    momentum_input  the momentum (of some optimizers the first of `betas`) becomes an input of the
                 step, as the learning rate is, for schedulers that change it
    fused_update  Adam, AdamW and SGD by PyTorch's fused kernels, one operator a parameter in the
                 graph and one call for many when it runs; False: written out
    check        compares the graph with eager PyTorch on random data at two more batch sizes. True:
                 always, False: never, None: if it takes a few seconds
    """
    try:
        return _export(
            model, make_inputs, loss_fn, optimizer, name, batches=batches, batch=batch,
            dropout=dropout, double=double, autocast=autocast, clip_norm=clip_norm,
            batch_norm=batch_norm, attention=attention, momentum_input=momentum_input,
            fused_update=fused_update, loss_scaling=loss_scaling, check=check,
        )  # fmt: skip
    except HeterogError:
        raise
    except Exception as error:
        raise unexpected(python_line(error), error) from error


def _export(
    model, make_inputs, loss_fn, optimizer, name, *, batches, batch, dropout, double, autocast,
    clip_norm, batch_norm, attention, momentum_input, fused_update, loss_scaling, check,
) -> TrainingStep:  # fmt: skip
    _check_options(name, batches, double, autocast, clip_norm)
    if batch_norm not in ("per-slice", "exact"):
        raise ExportError(f"batch_norm: {batch_norm!r} is not known; use 'per-slice' or 'exact'")
    if attention not in ("one", "math"):
        raise ExportError(f"attention: {attention!r} is not known; use 'one' or 'math'")
    given = model
    options = Options(
        dropout, double, getattr(torch, autocast) if autocast else None, clip_norm,
        batch_norm == "exact", attention, read_scaling(loss_scaling, autocast), fused_update,
    )  # fmt: skip
    model = _build(model)
    trained = [n for n, p in model.named_parameters() if p.requires_grad]
    if not trained:
        raise ExportError(
            "the model has no parameter that requires a gradient; set requires_grad to True on "
            "those to train"
        )
    update = describe_optimizer(optimizer, model, momentum_input)
    held, attributes = held_tensors(model)
    decompositions = {} if dropout else identity_decompositions()
    decompositions |= batch_norm_decompositions(options.exact)
    spec = StepSpec(
        model, loss_fn, options.autocast, trained, held, attributes, decompositions,
        options.attention, dropout, options.scaling is not None,
    )  # fmt: skip

    untrained: list[str] = []
    ladder = [tuple(batches)] if batches is not None else default_batches(batch)
    for sizes in ladder:
        try:
            samples = [_make_inputs(make_inputs, size) for size in sizes]
            try:
                step = _trace(spec, samples, sizes, update, options)
            except WithoutGradient as found:
                untrained = found.names
                spec, update = _without(spec, update, untrained)
                step = _trace(spec, samples, sizes, update, options)
            break
        except ExportError:
            if sizes is ladder[-1]:
                raise
    for tensor in step.inputs:
        if tensor.constant is not None:
            tensor.hints = constant_values(tensor.constant)
        elif tensor.name in spec.held:
            tensor.hints = buffer_values(spec.held[tensor.name])
    give_names(step)
    constants = {t.name: t.constant for t in step.inputs if t.constant is not None}
    parameters = [t for t in step.inputs if t.role == "parameter"]
    header = {
        "format": "heterog-graph",
        "version": 1,
        "name": name,
        "producer": {"torch": torch.__version__.split("+")[0], "heterog": heterog.version.VERSION},
        "traced_batches": list(sizes),
        "dtype": dtype_name(parameters[0].dtype),
        "optimizer": update.defaults,
    }
    if (allowed := _tf32()) != ["convolutions"]:  # PyTorch's own setting
        header["tf32"] = allowed
    graph = to_graph(step, header)
    if check is False:
        return TrainingStep(graph, "not checked against PyTorch", constants, untrained, update)
    names = _names_of(loss_fn, len(samples[0]))
    checked = Checked(
        given, make_inputs, names, loss_fn, update, dropout, options.autocast, clip_norm, constants
    )
    line = check_step(graph, checked, always=check is True)
    return TrainingStep(graph, line, constants, untrained, update)


def _without(spec: StepSpec, update: Update, names: list[str]) -> tuple[StepSpec, Update]:
    """The same step, in which these parameters stay as they are."""
    if set(names) >= set(spec.trained):
        raise ExportError(
            "no parameter gets a gradient: the loss depends on none that requires one"
        )
    parameters = dict(spec.model.named_parameters())
    groups = [
        replace(group, names=[name for name in group.names if name not in names])
        for group in update.groups
    ]
    left = [name for name in spec.trained if name not in names]
    held = {name: parameters[name] for name in names} | spec.held
    return replace(spec, trained=left, held=held), replace(update, groups=groups)


def _tf32() -> list[str]:
    """What PyTorch is set to multiply in TF32 of operands in float32, on GPUs that have it."""
    cublas, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    parts = {"products": (cublas, cublas), "convolutions": (cudnn, cudnn.conv)}
    allowed = []
    for name, (old, new) in parts.items():
        try:
            allows = old.allow_tf32
        except RuntimeError:  # it was set by the newer name
            allows = new.fp32_precision == "tf32"
        if allows:
            allowed.append(name)
    return allowed


def default_batches(batch: int | None) -> list[tuple[int, int, int]]:
    """What is traced at, best first. Even and odd sizes far apart, so that what a model decides by
    its batch shows; at 2, a size B - 1 is 1, where some operators specialise."""
    far = 64 if batch is None else batch
    return [(2, 3, far if far > 3 else 64), (4, 5, far if far > 5 else 64)]


def _trace(spec: StepSpec, samples: list[tuple], sizes, update, options: Options) -> Step:
    """The whole step, cleaned, with what was seen of its inputs."""

    def cast(tensor: torch.Tensor) -> torch.dtype:
        return torch.float64 if options.double and tensor.is_floating_point() else tensor.dtype

    names = _names_of(spec.loss_fn, len(samples[0]))
    _check_samples(samples, sizes)
    with _default_dtype(options.double):
        with contextlib.nullcontext() if options.dropout else without_dropout(spec.model):
            traces = [
                trace_gradients(spec, size, inputs, names, cast)
                for size, inputs in zip(sizes, samples, strict=True)
            ]
        step = merge_traces(traces)
        add_update(step, update, options.clip_norm, options.scaling, options.fused)
    step = clean(step)
    if options.exact:
        check_exact(step)
    for tensor in step.inputs:
        if tensor.role == "input" and tensor.setting is None:
            tensor.hints = input_values([sample[names.index(tensor.name)] for sample in samples])
    return step


def _check_options(name, batches, double, autocast, clip_norm) -> None:
    if not isinstance(name, str) or not name:
        raise ExportError(f"name: {name!r} is no name; give a string")
    if batches is not None and (
        any(not isinstance(b, int) or b < 2 for b in batches) or len(set(batches)) < 3
    ):
        raise ExportError(
            f"batches: {list(batches)}; give three different batch sizes of 2 or more (at 1, "
            "operators specialise)"
        )
    if autocast not in (None, "bfloat16", "float16"):
        raise ExportError(
            f"autocast: {autocast!r} is not known; use None, 'bfloat16' or 'float16'"
        )
    if autocast and double:
        raise ExportError("autocast and double exclude each other")
    if clip_norm is not None and not clip_norm > 0:
        raise ExportError(f"clip_norm: {clip_norm}; give a norm above 0")


def _build(model) -> torch.nn.Module:
    if isinstance(model, torch.nn.Module):
        return model
    if not callable(model):
        raise ExportError(
            f"model: {type(model).__name__} is neither an nn.Module nor a function that builds one"
        )
    try:
        with light_init():
            built = model()
    except Exception as error:
        raise ExportError(
            f"{python_line(error)}: building the model without its weights stopped at "
            f"{type(error).__name__}: {str(error).splitlines()[0][:200]}; pass the built model"
        ) from error
    if not isinstance(built, torch.nn.Module):
        raise ExportError(f"model: the function returned {type(built).__name__}, not an nn.Module")
    return built


def held_tensors(model):
    """Tensors of the model that the optimizer does not change, and where plain attributes sit."""
    held = {n: p for n, p in model.named_parameters() if not p.requires_grad}
    held |= dict(model.named_buffers())
    attributes = {}
    for path, module in model.named_modules():
        for attribute, value in vars(module).items():
            if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
                name = f"{path}.{attribute}" if path else attribute
                held[name] = value
                attributes[name] = (module, attribute)
    return held, attributes


def _make_inputs(make_inputs, batch: int) -> tuple:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            inputs = make_inputs(batch)
        except Exception as error:
            raise ExportError(
                f"{python_line(error)}: make_inputs({batch}) stopped at {type(error).__name__}: {error}"
            ) from error
    if not isinstance(inputs, (tuple, list)) or not inputs:
        raise ExportError(
            f"make_inputs({batch}) returned {type(inputs).__name__}; it must return a tuple of tensors"
        )
    for index, value in enumerate(inputs):
        if not isinstance(value, torch.Tensor):
            raise ExportError(
                f"make_inputs({batch}) returned {type(value).__name__} at place {index}; it must "
                "return a tuple of tensors"
            )
    return tuple(inputs)


def _check_samples(samples: list[tuple], batches) -> None:
    for batch, inputs in zip(batches, samples, strict=True):
        if len(inputs) != len(samples[0]):
            raise ExportError(
                f"make_inputs returned {len(samples[0])} tensors at batch {batches[0]} and "
                f"{len(inputs)} at batch {batch}; it must return the same ones for all"
            )
    if all(first.shape == last.shape for first, last in zip(samples[0], samples[-1])):
        raise ExportError(
            f"make_inputs returned tensors of the same shapes at batch {batches[0]} and "
            f"{batches[-1]}; their size must follow its argument"
        )


def input_names(loss_fn, make_inputs) -> list[str]:
    """How the graph names what make_inputs returns, in its order."""
    return _names_of(loss_fn, len(_make_inputs(make_inputs, 2)))


def _names_of(loss_fn, count: int) -> list[str]:
    """The argument names of loss_fn after the model, else input_0, input_1, …"""
    plain = [f"input_{i}" for i in range(count)]
    try:
        parameters = list(inspect.signature(loss_fn).parameters.values())[1:]
    except (TypeError, ValueError):
        return plain
    if any(p.kind in (p.VAR_POSITIONAL, p.KEYWORD_ONLY, p.VAR_KEYWORD) for p in parameters):
        return plain
    if len(parameters) < count:
        raise ExportError(
            f"make_inputs returned {count} tensors, loss_fn takes {len(parameters)} after the "
            "model; make them agree"
        )
    required = [p for p in parameters if p.default is p.empty]
    if len(required) > count:
        raise ExportError(
            f"make_inputs returned {count} tensors, loss_fn needs {len(required)} after the "
            "model; make them agree"
        )
    return [p.name for p in parameters[:count]]


@contextlib.contextmanager
def _default_dtype(double: bool):
    before = torch.get_default_dtype()
    try:
        if double:
            torch.set_default_dtype(torch.float64)
        yield
    finally:
        torch.set_default_dtype(before)
