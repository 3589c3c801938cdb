"""Models that are neither classifiers nor translators: recommendation and holography."""

from functools import partial
from typing import Sequence

import torch
from torch import nn

from .sizes import HOLOGRAPHY_IMAGE, NCF_ITEMS, NCF_USERS
from .spec import Published, Spec, adam, generator


class NeuralCollaborativeFilter(nn.Module):
    """NeuMF (He et al. 2017): user and item [B] → logit of their interaction [B].

    `layers` are the widths of the perceptron, the first being both embeddings side by side.
    """

    def __init__(self, users: int, items: int, factors: int, layers: Sequence[int]):
        super().__init__()
        self.user_factors = nn.Embedding(users, factors)
        self.item_factors = nn.Embedding(items, factors)
        self.user_features = nn.Embedding(users, layers[0] // 2)
        self.item_features = nn.Embedding(items, layers[0] // 2)
        self.perceptron = nn.Sequential()
        for narrow, wide in zip(layers[1:], layers):
            self.perceptron.append(nn.Linear(wide, narrow))
            self.perceptron.append(nn.ReLU())
        self.prediction = nn.Linear(factors + layers[-1], 1)

    def forward(self, user, item):
        product = self.user_factors(user) * self.item_factors(item)
        features = torch.cat([self.user_features(user), self.item_features(item)], dim=-1)
        together = torch.cat([product, self.perceptron(features)], dim=-1)
        return self.prediction(together).squeeze(-1)


def interactions(users: int, items: int):
    """Users, items and whether they met, each [B]."""

    def make(batch: int) -> tuple:
        rng = generator(batch)
        return (
            torch.randint(0, users, (batch,), generator=rng),
            torch.randint(0, items, (batch,), generator=rng),
            torch.randint(0, 2, (batch,), generator=rng).float(),
        )

    return make


def interaction_loss(model: nn.Module, user, item, met) -> torch.Tensor:
    return nn.functional.binary_cross_entropy_with_logits(model(user, item), met)


class ConvNorm(nn.Sequential):
    def __init__(self, inputs: int, filters: int):
        super().__init__(nn.Conv2d(inputs, filters, 3, padding=1), nn.BatchNorm2d(filters))


class TensorHolography(nn.Module):
    """Image with depth [B, 4, H, W] → amplitude and phase of three colours [B, 6, H, W].

    Shi et al. 2021: a residual network of 3×3 convolutions at full resolution; pairs of layers
    have a residual around them, one layer stands before and one after the pairs.
    """

    def __init__(self, layers: int, filters: int):
        super().__init__()
        self.first = ConvNorm(4, filters)
        self.pairs = nn.ModuleList(
            nn.Sequential(ConvNorm(filters, filters), nn.ReLU(), ConvNorm(filters, filters))
            for _ in range((layers - 2) // 2))  # fmt: skip
        self.last = nn.Conv2d(filters, 6, 3, padding=1)

    def forward(self, image):
        x = self.first(image).relu()
        for pair in self.pairs:
            x = (x + pair(x)).relu()
        return self.last(x).tanh()


def holograms(image: int):
    def make(batch: int) -> tuple:
        rng = generator(batch)
        return (
            torch.randn(batch, 4, image, image, generator=rng),
            torch.rand(batch, 6, image, image, generator=rng),
        )

    return make


def hologram_loss(model: nn.Module, image, hologram) -> torch.Tensor:
    """Squared error of the field, and absolute error of its differences between rows."""
    field = model(image)
    rows = field.diff(dim=2) - hologram.diff(dim=2)
    return nn.functional.mse_loss(field, hologram) + nn.functional.l1_loss(rows, torch.zeros_like(rows))


def specs() -> list[Spec]:
    ncf_layers = (64, 32, 16, 8)
    return [
        Spec("ncf", partial(NeuralCollaborativeFilter, NCF_USERS, NCF_ITEMS, 8, ncf_layers),
             interactions(NCF_USERS, NCF_ITEMS), interaction_loss, adam(1e-3),
             f"8 factors, perceptron {list(ncf_layers)}, {NCF_USERS:,} users, {NCF_ITEMS:,} items",
             Published(122_000_000, "AutoSync, Table 1, 122M", 0.005)),
        Spec("ncf-tiny", partial(NeuralCollaborativeFilter, 60, 40, 4, (16, 8)),
             interactions(60, 40), interaction_loss, adam(1e-3), "60 users, 40 items"),
        Spec("tensor_holography", partial(TensorHolography, 30, 24), holograms(HOLOGRAPHY_IMAGE),
             hologram_loss, adam(1e-4), f"30 layers of 24 filters, {HOLOGRAPHY_IMAGE} pixels",
             Published(617_000 // 4, "Shi et al. 2021, 617 kB of float32", 0.05)),
        Spec("tensor_holography-tiny", partial(TensorHolography, 4, 4), holograms(16),
             hologram_loss, adam(1e-4), "4 layers of 4 filters, 16 pixels"),
    ]  # fmt: skip
