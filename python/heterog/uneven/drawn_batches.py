"""Which of the batches that were drawn a pass of the model is of, and so which weight it has.

A plain loop computes each batch when it has drawn it, as often as it likes. A prefetcher draws one or
several before it computes the first; then what enters the model says which it is.
"""

import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch.utils._pytree import tree_leaves

from heterog.uneven.gradient_weights import GradientWeights, Weight

AHEAD_AT_MOST = 64  # batches that a prefetcher may hold
COMPARED = 8  # elements of each tensor
NEAR = 1e-2  # relative: what was cast to half precision is the same


@dataclass(frozen=True)
class Drawn:
    """One batch; `last`: the update comes after it. Of its tensors no copy is kept."""

    weight: Weight
    last: bool = True
    tensors: list = field(default_factory=list)  # reference, shape, some elements of each

    def alike(self, other: "Drawn") -> bool:
        key = self.weight.key
        return key is not None and key == other.weight.key and self.last == other.last

    def holds(self, values: Sequence[torch.Tensor]) -> bool:
        return any(_same(mine, value) for mine in self.tensors for value in values)


class DrawnBatches:
    """Sets the weight of each pass of some models, from the batches that were drawn for it."""

    def __init__(self, models: Sequence[GradientWeights], parts: int = 1):
        self._models = models
        self._parts = parts  # micro-batches that an even rank accumulates; 1: the script may
        self._known: deque[Drawn] = deque(maxlen=AHEAD_AT_MOST)  # from the one computed last on
        self._ahead = False  # batches are drawn before those before them are computed
        self._matched = False  # one was known by what entered the model
        self.begin_epoch()

    def begin_epoch(self) -> None:
        self._known.clear()
        self._ahead = self._matched = False
        self._first = True  # no batch has been computed yet
        for weights in self._models:
            weights.on_pass = lambda inputs, weights=weights: self._enter(inputs, weights)

    def add(self, weight: Weight, batch, last: bool = True) -> None:
        """`batch` is drawn next."""
        tensors = [_noted(value) for value in tree_leaves(batch) if isinstance(value, torch.Tensor)]
        self._known.append(Drawn(weight, last, tensors))
        if not self._ahead:
            self._set(weight)

    def _enter(self, inputs, weights: GradientWeights) -> None:
        if not self._known:
            return
        if self._first:
            self._first = False
            self._ahead = len(self._known) > 1
        chosen = self._known[-1]
        if self._ahead and not all(chosen.alike(other) for other in self._known):
            chosen = self._known_by(tree_leaves(inputs))
        while self._known[0] is not chosen:
            self._known.popleft()
        self._set(chosen.weight)
        self._check_summed(chosen, weights)

    def _known_by(self, inputs: list) -> Drawn:
        values = [value for value in inputs if isinstance(value, torch.Tensor)]
        for batch in self._known:
            if batch.holds(values):
                self._matched = True
                return batch
        if self._matched:  # what the script made itself, beside this batch
            return self._known[0]
        raise RuntimeError(
            "the loop draws batches before it computes those before them, and what enters the model "
            "is no tensor of them, so that their weights cannot be told apart: let the prefetcher "
            "only move batches, or draw each when the one before it is computed"
        )

    def _set(self, weight: Weight) -> None:
        for weights in self._models:
            weights.current = weight

    def _check_summed(self, batch: Drawn, weights: GradientWeights) -> None:
        """Ranks accumulate different numbers of micro-batches: all sum after their last."""
        if self._parts > 1 and batch.last != weights.summed:
            when = "after another micro-batch than" if weights.summed else "not after"
            raise RuntimeError(
                f"accumulate: gradients are summed {when} this rank's last of the step; sum them, and "
                "update, where the loader's `last` is true, and use model.no_sync() elsewhere"
            )


def _noted(value: torch.Tensor) -> tuple:
    elements = _some(value) if value.device.type == "cpu" else None
    return weakref.ref(value), value.shape, elements


def _some(value: torch.Tensor) -> torch.Tensor:
    flat = value.detach().reshape(-1)
    return flat[:: max(1, len(flat) // COMPARED)][:COMPARED].to("cpu", torch.float64)


def _same(noted: tuple, value: torch.Tensor) -> bool:
    reference, shape, elements = noted
    if reference() is value:
        return True
    if elements is None or shape != value.shape or value.numel() == 0:
        return False
    return torch.allclose(_some(value), elements, rtol=NEAR, atol=0.0, equal_nan=True)
