"""The loss of a pipeline's micro-batches: each rank's part weighs what it has of what the loss is a mean
over, so that gradients add up to those of the whole batch.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from heterog.base.errors import InputError
from heterog.engines.handed_over import HandedOver


class WeighedLoss:
    """What a schedule calls as its loss, on the last stage.

    Of M micro-batches PyTorch takes the mean of the gradients, which replicas then add up. So a part
    that counts c of the C of a whole batch weighs M · c / C. Without `count` samples count.
    """

    def __init__(self, loss_fn: Callable, result: pytree.TreeSpec | None, handed: HandedOver, count: Callable | None):
        self._loss_fn, self._result, self._handed, self._count = loss_fn, result, handed, count
        self._whole = float(handed.batch)

    def begin(self, target: Any) -> None:
        """A step: `target` is that of the whole batch, on all ranks."""
        if self._count is None:
            return
        self._whole = float(self._count(target))
        if not self._whole > 0:
            raise InputError(f"count: {self._whole:g} of the whole batch; expected a number above 0")

    def __call__(self, leaves, target) -> torch.Tensor:
        if self._count is None and self._handed.replicas == 1:
            return self._loss(leaves, target)  # all parts are alike
        count = len(target) if self._count is None else float(self._count(target))
        if count == 0:  # the mean over nothing is no number
            return sum(leaf.sum() * 0 for leaf in leaves if leaf.requires_grad)
        return self._loss(leaves, target) * (self._handed.micro_batches * count / self._whole)

    def _loss(self, leaves, target) -> torch.Tensor:
        return self._loss_fn(pytree.tree_unflatten(list(leaves), self._result), target)
