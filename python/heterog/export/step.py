"""export_training_step: from a PyTorch model to the graph of one whole training step."""

import contextlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import torch

import heterog.base.version
from heterog.base.errors import ExportError, HeterogError, unexpected
from heterog.base.given import FilePath, LossFunction, MakeInputs, Model, Optimizer
from heterog.base.progress import phase, progress, say_once
from heterog.export.cache import Stored, cache_folder, stored_or_made
from heterog.export.check import Checked, check_step
from heterog.export.graph.diagnosis import python_line
from heterog.export.graph.hints import buffer_values, input_values
from heterog.export.graph.names import give_names
from heterog.export.graph.refusals import check_tensors
from heterog.export.graph.samples import Samples, check_samples, default_batches, names_of
from heterog.export.graph.writer import dtype_name, to_graph
from heterog.export.loss_scaling import LossScaling, read_scaling
from heterog.export.operators.autocast import autocast as cast_automatically
from heterog.export.operators.batch_norm import batch_norm_decompositions, check_exact, is_synchronised
from heterog.export.operators.dropout import identity_decompositions, without_dropout
from heterog.export.optimizer.number import Known
from heterog.export.optimizer.settings import Update, describe_optimizer
from heterog.export.state.fingerprint import Unhashable
from heterog.export.state.key import export_key
from heterog.export.state.python_state import PythonState
from heterog.export.state.tf32 import PYTORCHS_OWN, tf32_allowed
from heterog.export.tracing.clean import clean
from heterog.export.tracing.constants import constant_values
from heterog.export.tracing.light import light_init
from heterog.export.tracing.masters import Masters, read_masters
from heterog.export.tracing.merge import merge_traces
from heterog.export.tracing.trace import StepSpec, TraceCall, WithoutGradient
from heterog.export.tracing.ways import known_batches, second_alike, trace_gradients
from heterog.export.training_step import TrainingStep
from heterog.export.update import add_update


@dataclass(frozen=True)
class Options:
    """How a step is exported; export_training_step says what each means."""

    dropout: bool
    double: bool
    autocast: torch.dtype | None
    masters: Masters | None
    clip_norm: float | None
    exact: bool  # batch normalisation
    attention: str
    scaling: LossScaling | None
    fused: bool  # the update
    norm: bool  # of the gradients is an output


def export_training_step(
    model: Model,
    make_inputs: MakeInputs,
    loss_fn: LossFunction,
    optimizer: Optimizer,
    name: str,
    *,
    batches: Sequence[int] | None = None,
    batch: int | None = None,
    dropout: bool = True,
    double: bool = False,
    autocast: str | None = None,
    param_dtype: str | None = None,
    reduce_dtype: str | None = None,
    clip_norm: float | None = None,
    gradient_norm: bool = False,
    batch_norm: str = "per-slice",
    attention: str = "one",
    momentum_input: bool = False,
    fused_update: bool = True,
    loss_scaling: "LossScaling | dict | bool | None" = None,
    check: bool | None = None,
    cache: FilePath | bool | None = None,
) -> TrainingStep:
    """Exports forward, backward and update of one training step.

    model        an nn.Module, each of its modules in the mode (train, eval) in which it is to train;
                 or a function without arguments that builds one: then its large weights are never
                 allocated
    make_inputs  batch size → tuple of tensors
    loss_fn      (model, *inputs) → scalar tensor; or that and a dict of other tensors, by name, that
                 the step gives out (accuracy, logits)
    optimizer    any torch.optim.Optimizer whose step() computes with tensors and takes no closure,
                 or a function parameters → optimizer
    batches      the batch sizes to trace at: three or more, each at least 2. The graph holds from
                 the smallest on. By default 2, 3 and 64, or where those do not agree 4, 5 and 64
    batch        with the default `batches`, a size at which the step will run, in place of 64
    dropout      False: as if every dropout rate were 0
    double       parameters and floating inputs in float64
    autocast     "bfloat16" or "float16": the forward pass and the loss under torch.autocast
    param_dtype  "bfloat16" or "float16": forward and backward compute with copies of the float32
                 parameters in this precision, and call the model with floating tensors in it; the
                 optimizer updates the float32 ones
    reduce_dtype  with param_dtype, in what precision gradients are summed over devices: "float32",
                 the default, or that of param_dtype, which is half as many bytes
    loss_scaling  a LossScaling, or a dict of its fields: the loss is scaled as
                 torch.amp.GradScaler does, inside the step. None: with float16 alone. False: never
    clip_norm    gradients are scaled to at most this global 2-norm before the update
    gradient_norm  the global 2-norm of the gradients, before they are clipped, is an output too
    batch_norm   "exact": batch normalisation in training mode takes the statistics of the whole
                 batch however it is sliced, at the price of four small all-reduces for each;
                 "per-slice": those of each slice, as data parallelism elsewhere, unless the model
                 has an nn.SyncBatchNorm, which means "exact"
    attention    "one": scaled_dot_product_attention is one operator, forward and backward, whose
                 scores are never kept; "math": written out
    momentum_input  the momentum (of some optimizers the first of `betas`) becomes an input of the
                 step, as the learning rate is, for schedulers that change it
    fused_update  Adam, AdamW and SGD by PyTorch's fused kernels, one operator a parameter in the
                 graph and one call for many when it runs; False: written out
    check        compares the graph with eager PyTorch on random data at two more batch sizes. True:
                 always, False: never, None: if it takes a few seconds
    cache        a folder where the step is kept, and from which the same is taken the next time;
                 True: the folder of get_runner. None: it is exported anew
    """
    try:
        with progress(f"the export of {name}"):
            return _export(
                model, make_inputs, loss_fn, optimizer, name, batches=batches, batch=batch,
                dropout=dropout, double=double, autocast=autocast,
                param_dtype=param_dtype, reduce_dtype=reduce_dtype, clip_norm=clip_norm,
                gradient_norm=gradient_norm, batch_norm=batch_norm, attention=attention, momentum_input=momentum_input,
                fused_update=fused_update, loss_scaling=loss_scaling, check=check, cache=cache,
            )  # fmt: skip
    except HeterogError:
        raise
    except Exception as error:
        raise unexpected(python_line(error), error) from error


@dataclass(frozen=True)
class _Job:
    """What is to be exported, with all options read."""

    name: str
    given: object  # the model, or the function that builds one
    spec: StepSpec
    samples: Samples
    ladder: list[tuple]  # batch sizes to trace at, best first
    update: Update
    options: Options
    check: bool | None


def _export(
    model, make_inputs, loss_fn, optimizer, name, *, batches, batch, dropout, double, autocast,
    param_dtype, reduce_dtype, clip_norm, gradient_norm, batch_norm, attention, momentum_input, fused_update,
    loss_scaling, check, cache,
) -> TrainingStep:  # fmt: skip
    _check_options(name, batches, double, autocast, param_dtype, clip_norm)
    if batch_norm not in ("per-slice", "exact"):
        raise ExportError(f"batch_norm: {batch_norm!r} is not known; use 'per-slice' or 'exact'")
    if attention not in ("one", "math"):
        raise ExportError(f"attention: {attention!r} is not known; use 'one' or 'math'")
    folder = cache_folder(cache)
    options = Options(
        dropout, double, getattr(torch, autocast) if autocast else None,
        read_masters(param_dtype, reduce_dtype), clip_norm, batch_norm == "exact", attention,
        read_scaling(loss_scaling, autocast or param_dtype), fused_update, gradient_norm,
    )  # fmt: skip
    phase("builds the model")
    built = _build(model)
    check_tensors(built)
    if is_synchronised(built):
        options = replace(options, exact=True)
    trained = [n for n, p in built.named_parameters() if p.requires_grad]
    if not trained:
        raise ExportError(
            "the model has no parameter that requires a gradient; set requires_grad to True on "
            "those to train"
        )
    phase("looks at the optimizer")
    update = describe_optimizer(optimizer, built, momentum_input)
    held, attributes = held_tensors(built)
    decompositions = {} if dropout else identity_decompositions()
    decompositions |= batch_norm_decompositions(options.exact)
    spec = StepSpec(
        built, loss_fn, options.autocast, trained, held, attributes, decompositions,
        options.attention, dropout, options.scaling is not None, options.masters, options.exact,
    )  # fmt: skip
    ladder = [tuple(batches)] if batches is not None else default_batches(batch)
    job = _Job(name, model, spec, Samples(make_inputs), ladder, update, options, check)
    key = _key_of(job) if folder is not None else None
    if folder is None or key is None:
        return _as_step(job, _made(job))
    return _as_step(job, stored_or_made(folder, key, lambda: _made(job)))


def _key_of(job: _Job) -> str | None:
    """None: who knows whether it is the same step."""
    phase("looks for the step in the cache")
    settings = asdict(job.options) | {
        "name": job.name,
        "batches": job.ladder,
        "check": job.check,
        "built here": job.given is not job.spec.model,
        "momentum input": job.update.momentum is not None,
    }
    sizes = {size for rung in job.ladder for size in rung}
    try:
        return export_key(
            job.spec.model, job.spec.loss_fn, job.update, job.samples, sizes, settings
        )
    except Unhashable as reason:
        say_once(f"the export of {job.name} is not kept for the next time: {reason}")
        return None


def _made(job: _Job) -> Stored:
    """Exports the step, and compares it with PyTorch."""
    phase("looks at what the step reads")
    python = PythonState(job.spec.model, job.spec.loss_fn, job.update.optimizer)
    spec, update = replace(job.spec, python=python), job.update
    untrained: list[str] = []
    for sizes in job.ladder:
        try:
            samples = [job.samples.at(size) for size in sizes]
            try:
                step, holds, alike = _trace(spec, samples, sizes, update, job.options)
            except WithoutGradient as found:
                untrained = found.names
                spec, update = _without(spec, update, untrained)
                step, holds, alike = _trace(spec, samples, sizes, update, job.options)
            break
        except ExportError:
            if sizes is job.ladder[-1]:
                raise
    kept = python.settle(samples[0], lambda: cast_automatically(spec.autocast))
    for tensor in step.inputs:
        if tensor.constant is not None:
            tensor.hints = constant_values(tensor.constant)
    give_names(step)
    constants = {t.name: t.constant for t in step.inputs if t.constant is not None}
    parameters = [t for t in step.inputs if t.role == "parameter"]
    header = {
        "format": "heterog-graph",
        "version": 1,
        "name": job.name,
        "producer": {"torch": torch.__version__.split("+")[0], "heterog": heterog.base.version.VERSION},
        "traced_batches": list(sizes),
        "holds": [list(each) for each in holds],
        "dtype": dtype_name(parameters[0].dtype),
        "optimizer": update.defaults,
    }
    if (allowed := tf32_allowed()) != PYTORCHS_OWN:
        header["tf32"] = allowed
    graph = to_graph(step, header)
    line = "not checked against PyTorch"
    if job.check is not False:
        phase("compares the step with PyTorch")
        names = names_of(spec.loss_fn, len(samples[0]))
        checked = Checked(
            job.given, job.samples.make_inputs, names, spec.loss_fn, update, job.options.dropout,
            job.options.autocast, job.options.clip_norm, constants, job.options.masters,
        )  # fmt: skip
        line = check_step(graph, checked, job.check is True, alike)
    momentum = None if update.momentum is None else update.momentum.answers
    return Stored(graph, line, constants, untrained, update.forms, momentum, kept)


def _as_step(job: _Job, stored: Stored) -> TrainingStep:
    """With what belongs to this model: its optimizer, and what is said of its values."""
    spec, update = job.spec, job.update
    if stored.untrained:
        spec, update = _without(spec, update, stored.untrained)
    momentum = update.momentum and Known(update.momentum.value, stored.momentum)
    update = replace(update, forms=stored.forms, momentum=momentum)
    samples = [job.samples.at(size) for size in stored.graph["traced_batches"]]
    names = names_of(spec.loss_fn, len(samples[0]))
    for entry in stored.graph["tensors"]:
        name = entry["name"]
        if entry["role"] == "buffer" and name in spec.held and name not in stored.constants:
            entry.pop("values", None)
            entry |= buffer_values(spec.held[name])
        elif entry["role"] == "input" and entry.get("argument", name) in names:
            entry.pop("values", None)
            place = names.index(entry.get("argument", name))
            entry |= input_values([sample[place] for sample in samples])
    return TrainingStep(
        stored.graph, stored.checked, stored.constants, stored.untrained, update, stored.python
    )


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


def _trace(spec: StepSpec, samples: list[tuple], sizes, update, options: Options):
    """The whole step, cleaned; for which batches it is known to hold; and what says whether a second
    step is the same."""

    def cast(tensor: torch.Tensor) -> torch.dtype:
        return torch.float64 if options.double and tensor.is_floating_point() else tensor.dtype

    names = names_of(spec.loss_fn, len(samples[0]))
    check_samples(samples, sizes)
    with _default_dtype(options.double):
        with contextlib.nullcontext() if options.dropout else without_dropout(spec.model):
            traces: list = []
            for size, inputs in zip(sizes, samples, strict=True):
                phase(f"traces it at batch {size}, {len(traces) + 1} of {len(sizes)}")
                traces.append(trace_gradients(TraceCall(spec, size, inputs, names, cast)))
        phase("makes one graph of what was traced")
        step = merge_traces(traces)
        phase("looks for which batches it holds")
        calls = [TraceCall(spec, *each, names, cast) for each in zip(sizes, samples, strict=True)]
        holds = known_batches(traces, samples, calls[-1])
        phase("traces the optimizer")
        add_update(
            step, update, options.clip_norm, options.scaling, options.fused, options.norm
        )
    step = clean(step)
    if options.exact:
        check_exact(step)

    def alike() -> bool | None:
        phase("traces a second step")
        with _default_dtype(options.double):
            with contextlib.nullcontext() if options.dropout else without_dropout(spec.model):
                return second_alike(traces[0], calls[0])

    return step, holds, alike


def _check_options(name, batches, double, autocast, param_dtype, clip_norm) -> None:
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
    if param_dtype and (autocast or double):
        raise ExportError(
            f"param_dtype and {'autocast' if autocast else 'double'} exclude each other"
        )
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


@contextlib.contextmanager
def _default_dtype(double: bool):
    before = torch.get_default_dtype()
    try:
        if double:
            torch.set_default_dtype(torch.float64)
        yield
    finally:
        torch.set_default_dtype(before)
