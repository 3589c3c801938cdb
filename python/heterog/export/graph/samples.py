"""What make_inputs gives at the batch sizes that a step is traced at."""

import inspect

import torch

from heterog.base.errors import ExportError
from heterog.export.graph.diagnosis import python_line


class Samples:
    """The inputs at each batch size; make_inputs is called once for each."""

    def __init__(self, make_inputs):
        self.make_inputs = make_inputs
        self._made: dict[int, tuple] = {}

    def at(self, batch: int) -> tuple:
        if batch not in self._made:
            self._made[batch] = _make_inputs(self.make_inputs, batch)
        return self._made[batch]


def default_batches(batch: int | None) -> list[tuple[int, int, int]]:
    """What is traced at, best first. Even and odd sizes far apart, so that what a model decides by
    its batch shows; at 2, a size B - 1 is 1, where some operators specialise."""
    far = 64 if batch is None else batch
    return [(2, 3, far if far > 3 else 64), (4, 5, far if far > 5 else 64)]


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


def check_samples(samples: list[tuple], batches) -> None:
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
    return names_of(loss_fn, len(_make_inputs(make_inputs, 2)))


def names_of(loss_fn, count: int) -> list[str]:
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
