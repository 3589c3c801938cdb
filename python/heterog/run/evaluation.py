"""Runs a module over batches to measure it, on one device, and gives sums of what was measured."""

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from heterog.base.errors import HeterogError


def sums_over(
    model: torch.nn.Module,
    device: str,
    measure: Callable[[torch.nn.Module, Any], Mapping[str, Any]],
    batches: Iterable[Any],
    part: tuple[int, int],
) -> dict[str, float]:
    """Sums of what measure(model, batch) says, over every batch whose number, divided by part[1],
    leaves part[0]. Who gets none measures the first one, and says 0 of it: its names are needed."""
    own, parts = part
    sums: dict[str, float] = {}
    first = None
    with _evaluating(model, device) as module, torch.no_grad():
        for number, batch in enumerate(batches):
            if number == 0:
                first = (batch,)
            if number % parts == own:
                _add(sums, measure(module, _to(batch, device)), 1)
        if first is None:
            raise HeterogError("evaluate: there are no batches")
        if not sums:
            _add(sums, measure(module, _to(first[0], device)), 0)
    return sums


def _add(sums: dict[str, float], measured, weight: int) -> None:
    if not isinstance(measured, Mapping) or not measured:
        raise HeterogError(
            f"evaluate: {type(measured).__name__} measured; return a dict of numbers by name, at least "
            "one, that are to be added up"
        )
    if sums and measured.keys() != sums.keys():
        raise HeterogError(
            f"evaluate: {', '.join(measured)} measured of a batch, and {', '.join(sums)} of the one "
            "before; expected the same names"
        )
    for name, value in measured.items():
        sums[name] = sums.get(name, 0.0) + weight * float(value)


@contextlib.contextmanager
def _evaluating(model: torch.nn.Module, device: str) -> Iterator[torch.nn.Module]:
    """The module in eval(), itself on the CPU, a copy elsewhere; it is left as it was."""
    if device != "cpu":
        yield copy.deepcopy(model).to(device).eval()
        return
    modes = {module: module.training for module in model.modules()}
    try:
        yield model.eval()
    finally:
        for module, training in modes.items():
            module.training = training


def _to(batch, device: str):
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {key: _to(value, device) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return [_to(value, device) for value in batch]
    return batch
