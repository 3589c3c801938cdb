"""export_training_step: from a PyTorch model to the graph of one whole training step."""

import contextlib
import inspect
import os
from dataclasses import dataclass

import torch

import heterog.version
from heterog.batch_norm import check_exact, exact_decompositions
from heterog.clean import clean
from heterog.dropout import check_nothing_random, identity_decompositions, without_dropout
from heterog.errors import ExportError
from heterog.hints import buffer_values, input_values
from heterog.light import light_init
from heterog.merge import merge_traces
from heterog.optimizers import describe_optimizer
from heterog.trace import StepSpec, python_line, trace_gradients
from heterog.update import add_update
from heterog.writer import dtype_name, to_graph, write_graph


@dataclass(frozen=True)
class TrainingStep:
    """An exported step. `graph` is the plain dictionary of docs/formats.md."""

    graph: dict

    def save(self, path) -> None:
        """Writes `.json.gz`; the same graph gives the same bytes."""
        write_graph(self.graph, path)


def export_training_step(
    model,
    make_inputs,
    loss_fn,
    optimizer,
    name: str,
    *,
    batches=(4, 6, 10),
    dropout: bool = True,
    double: bool = False,
    autocast: str | None = None,
    clip_norm: float | None = None,
    batch_norm: str = "per-slice",
) -> TrainingStep:
    """Exports forward, backward and update of one training step.

    model        an nn.Module, or a function without arguments that builds one: then its large
                 weights are never allocated
    make_inputs  batch size → tuple of tensors
    loss_fn      (model, *inputs) → scalar tensor
    optimizer    a torch.optim SGD, Adam or AdamW, or a function parameters → optimizer
    batches      the batch sizes to trace at: three or more, each at least 2
    dropout      False: as if every dropout rate were 0
    double       parameters and floating inputs in float64
    autocast     "bfloat16": the forward pass and the loss under torch.autocast
    clip_norm    gradients are scaled to at most this global 2-norm before the update
    batch_norm   "exact": batch normalisation in training mode takes the statistics of the whole
                 batch however it is sliced, at the price of four small all-reduces for each;
                 "per-slice": those of each slice, as data parallelism elsewhere
    """
    _check_options(name, batches, double, autocast, clip_norm)
    if batch_norm not in ("per-slice", "exact"):
        raise ExportError(f"batch_norm: {batch_norm!r} is not known; use 'per-slice' or 'exact'")
    exact = batch_norm == "exact"
    model = _build(model)
    trained = [n for n, p in model.named_parameters() if p.requires_grad]
    if not trained:
        raise ExportError(
            "the model has no parameter that requires a gradient; set requires_grad to True on "
            "those to train"
        )
    update = describe_optimizer(optimizer, model)
    held, attributes = held_tensors(model)
    spec = StepSpec(
        model,
        loss_fn,
        torch.bfloat16 if autocast else None,
        trained,
        held,
        attributes,
        ({} if dropout else identity_decompositions()) | (exact_decompositions() if exact else {}),
    )

    def cast(tensor: torch.Tensor) -> torch.dtype:
        return torch.float64 if double and tensor.is_floating_point() else tensor.dtype

    samples = [_make_inputs(make_inputs, batch) for batch in batches]
    names = _names_of(loss_fn, len(samples[0]))
    _check_samples(samples, batches)
    with _training_mode(model), _default_dtype(double):
        with contextlib.nullcontext() if dropout else without_dropout(model):
            traces = [
                trace_gradients(spec, batch, inputs, names, cast)
                for batch, inputs in zip(batches, samples, strict=True)
            ]
        step = merge_traces(traces)
        add_update(step, update, clip_norm)
    step = clean(step)
    if not dropout:
        check_nothing_random(step)
    if exact:
        check_exact(step)
    for tensor in step.inputs:
        if tensor.role == "buffer":
            tensor.hints = buffer_values(held[tensor.name])
        elif tensor.name in names:
            tensor.hints = input_values([sample[names.index(tensor.name)] for sample in samples])
    parameters = [t for t in step.inputs if t.role == "parameter"]
    header = {
        "format": "heterog-graph",
        "version": 1,
        "name": name,
        "producer": {"torch": torch.__version__.split("+")[0], "heterog": heterog.version.VERSION},
        "traced_batches": list(batches),
        "dtype": dtype_name(parameters[0].dtype),
        "optimizer": update.defaults,
    }
    return TrainingStep(to_graph(step, header))


def _check_options(name, batches, double, autocast, clip_norm) -> None:
    if not isinstance(name, str) or not name:
        raise ExportError(f"name: {name!r} is no name; give a string")
    distinct = sorted(set(batches))
    if len(distinct) < 3 or any(not isinstance(b, int) or b < 2 for b in batches):
        raise ExportError(
            f"batches: {list(batches)}; give three different batch sizes of 2 or more (at 1, "
            "operators specialise)"
        )
    if autocast not in (None, "bfloat16"):
        raise ExportError(f"autocast: {autocast!r} is not known; use None or 'bfloat16'")
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
def _training_mode(model):
    modes = {module: module.training for module in model.modules()}
    try:
        model.train()
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


@contextlib.contextmanager
def _default_dtype(double: bool):
    before = torch.get_default_dtype()
    try:
        if double:
            torch.set_default_dtype(torch.float64)
        yield
    finally:
        torch.set_default_dtype(before)
