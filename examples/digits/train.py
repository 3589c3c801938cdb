"""Trains a small convolution net on scikit-learn's handwritten digits, in plain PyTorch and on the
devices of a plan, from the same weights and in the same order of batches, and prints both.

    pip install scikit-learn==1.7.2
    python examples/digits/train.py                                  # two workers on this machine
    python examples/digits/train.py --devices V100-PCIE-16GB GTX-1080-Ti T4 --planner ev-ps
    torchrun --standalone --nproc-per-node 2 examples/digits/train.py

docs/client.md goes through it.
"""

import argparse
import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import heterog

BATCH = 96  # over all devices


def build_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 10),
    )


def build_optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=5e-4)


def build_scheduler(optimizer, epochs: int):
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)


def make_inputs(batch: int):
    return torch.rand(batch, 1, 8, 8), torch.randint(0, 10, (batch,))


def loss_fn(model, image, label):
    return F.cross_entropy(model(image), label)


def make_data() -> tuple[TensorDataset, TensorDataset]:
    """1,437 digits to train on and 360 to test, 8 × 8 points each, as the package ships them."""
    digits = load_digits()
    image = torch.from_numpy(digits.images).float().unsqueeze(1) / 16
    label = torch.from_numpy(digits.target).long()
    order = torch.randperm(len(label), generator=torch.Generator().manual_seed(0))
    train, test = order[:1437], order[1437:]
    return TensorDataset(image[train], label[train]), TensorDataset(image[test], label[test])


def make_loader(data: TensorDataset) -> DataLoader:
    """The same batches in the same order each time that it is made."""
    generator = torch.Generator().manual_seed(1)
    return DataLoader(data, BATCH, shuffle=True, drop_last=True, generator=generator)


def accuracy(model: nn.Module, data: TensorDataset) -> float:
    model.eval()
    with torch.no_grad():
        image = data.tensors[0].to(model[0].weight.dtype)
        right = model(image).argmax(1) == data.tensors[1]
    model.train()
    return right.float().mean().item()


def train_plainly(train: TensorDataset, options) -> tuple[nn.Module, float]:
    model = build_model().to(torch.float64 if options.double else torch.float32)
    optimizer = build_optimizer(model.parameters())
    scheduler = build_scheduler(optimizer, options.epochs)
    loader = make_loader(train)
    for _ in range(options.epochs):
        for image, label in loader:
            optimizer.zero_grad()
            loss = loss_fn(model, image.to(model[0].weight.dtype), label)
            loss.backward()
            optimizer.step()
        scheduler.step()
    return model, loss.item()


def train_with_runner(train: TensorDataset, options) -> tuple[nn.Module, float, heterog.Runner]:
    devices = options.devices[0] if len(options.devices) == 1 else options.devices
    # Statistics of the whole batch, as one device has them, however the batch is cut.
    config = {"batch": BATCH, "planner": options.planner, "batch_norm": "exact"}
    config |= {"double": options.double, "any_device": True}
    with heterog.get_runner(
        build_model, make_inputs, loss_fn, build_optimizer, devices, config
    ) as runner:
        scheduler = build_scheduler(runner.optimizer, options.epochs)
        loader = make_loader(train)
        for _ in range(options.epochs):
            for batch in loader:
                loss = runner.step(batch)
            scheduler.step()
        return runner.sync_to_model(), loss, runner


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--devices", nargs="+", default=["cpu:2"], help="models, or a cluster file")
    parser.add_argument("--planner", default="ev-ar", help="one of `heterog planners`")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--double", action="store_true", help="in float64, where rounding is small")
    options = parser.parse_args()
    train, test = make_data()
    model, loss, runner = train_with_runner(train, options)
    if runner.rank != 0:
        return
    plain, plain_loss = train_plainly(train, options)
    difference = max(
        (found - expected).norm() / expected.norm()
        for found, expected in zip(model.parameters(), plain.parameters(), strict=True)
    )
    devices = f"{runner.ranks} devices, processes" if "RANK" in os.environ else f"{runner.ranks} devices"
    print(f"{options.epochs} epochs of {len(train) // BATCH} steps, batch {BATCH}, {devices}")
    print(f"plain PyTorch   loss {plain_loss:.6f}, test accuracy {accuracy(plain, test):.4f}")
    print(f"{options.planner:15} loss {loss:.6f}, test accuracy {accuracy(model, test):.4f}")
    print(f"largest relative difference of a parameter: {difference:.1e}")


if __name__ == "__main__":
    main()
