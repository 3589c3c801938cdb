"""Writes the graphs under tests/data, which tests of the C++ library read.

    PYTHONPATH=python .venv/bin/python scripts/export_test_graphs.py
"""

from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

import heterog

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "data"


class Normalised(nn.Module):
    """A small residual network with batch normalisation of images and of vectors, with and without
    weights."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8))
        self.block = nn.Sequential(
            nn.Conv2d(8, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8, momentum=0.3),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.BatchNorm2d(8, affine=False),
        )
        self.head = nn.Sequential(nn.Linear(8, 12), nn.BatchNorm1d(12), nn.Tanh(), nn.Linear(12, 5))

    def forward(self, image):
        x = self.stem(image).relu()
        x = (x + self.block(x)).relu()
        return self.head(x.mean((2, 3)))


def exact_batch_norm() -> heterog.TrainingStep:
    return heterog.export_training_step(
        Normalised,
        lambda batch: (torch.randn(batch, 3, 6, 6), torch.randint(0, 5, (batch,))),
        lambda model, image, label: F.cross_entropy(model(image), label),
        lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-3),
        "exact_batch_norm",
        batch_norm="exact",
    )


GRAPHS = {"exact_batch_norm": exact_batch_norm}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, export in GRAPHS.items():
        export().save(FOLDER / f"{name}.json.gz")
        print(FOLDER / f"{name}.json.gz")


if __name__ == "__main__":
    main()
