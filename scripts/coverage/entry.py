"""What the table of coverage knows of an architecture: how to build it, feed it and train it."""

from dataclasses import dataclass
from functools import partial
from typing import Callable

import torch
from torch.nn import functional as F

CLASSES = 10


@dataclass(frozen=True)
class Entry:
    """One architecture. `build` makes it at the sizes of the table; all else is as its library's
    users get it: dropout, stochastic depth, caches, training mode."""

    name: str  # library/architecture
    kind: str
    build: Callable[[], torch.nn.Module]
    make_inputs: Callable[[int], tuple]
    loss_fn: Callable[..., torch.Tensor]
    optimizer: Callable
    heavy: bool = False  # takes more than half a minute, or gigabytes: left out by --quick

    @property
    def library(self) -> str:
        return self.name.partition("/")[0]


sgd = partial(torch.optim.SGD, lr=0.01, momentum=0.9, weight_decay=1e-4)
adamw = partial(torch.optim.AdamW, lr=1e-3)


def images(*sizes: int, channels: int = 3, classes: int = CLASSES):
    """Images (or clips) of these sizes and the class of each."""

    def make(batch: int) -> tuple:
        return torch.randn(batch, channels, *sizes), torch.randint(0, classes, (batch,))

    return make


def classification_loss(model, image, label):
    return F.cross_entropy(model(image), label)
