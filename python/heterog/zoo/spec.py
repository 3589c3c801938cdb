"""What the zoo knows of a model: how to make it, feed it, train it, and what was published of it."""

from dataclasses import dataclass
from functools import partial
from typing import Callable, Optional

import torch
from torch import nn


@dataclass(frozen=True)
class Published:
    """A number of parameters that somebody else printed; `tolerance` is relative, 0 means exact."""

    parameters: int
    source: str
    tolerance: float = 0.0


@dataclass(frozen=True)
class Spec:
    """One training step: `loss_fn(factory(), *make_inputs(batch))` under `optimizer(parameters)`."""

    name: str
    factory: Callable[[], nn.Module]
    make_inputs: Callable[[int], tuple]
    loss_fn: Callable[..., torch.Tensor]
    optimizer: Callable
    note: str
    published: Optional[Published] = None

    @property
    def tiny(self) -> bool:
        return self.name.endswith("-tiny")


def sgd(learning_rate: float, weight_decay: float = 1e-4) -> Callable:
    """Momentum SGD as the image models' papers train."""
    return partial(torch.optim.SGD, lr=learning_rate, momentum=0.9, weight_decay=weight_decay)


def plain_sgd(learning_rate: float) -> Callable:
    """SGD without momentum or decay, as the LSTM language model's paper trains."""
    return partial(torch.optim.SGD, lr=learning_rate)


def adam(learning_rate: float) -> Callable:
    return partial(torch.optim.Adam, lr=learning_rate)


def generator(batch: int) -> torch.Generator:
    """The same inputs for the same batch size, whatever ran before."""
    return torch.Generator().manual_seed(batch)


def images(image: int, classes: int, channels: int = 3) -> Callable[[int], tuple]:
    """Inputs of an image classifier: images [B, channels, image, image], labels [B]."""

    def make(batch: int) -> tuple:
        rng = generator(batch)
        return (
            torch.randn(batch, channels, image, image, generator=rng),
            torch.randint(0, classes, (batch,), generator=rng),
        )

    return make


def classification_loss(model: nn.Module, image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(model(image), label)
