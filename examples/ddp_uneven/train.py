"""Trains a small classifier with DistributedDataParallel on unequal shares of every batch.

    torchrun --standalone --nproc-per-node 2 examples/ddp_uneven/train.py --shares shares.json

Without torchrun and --shares, the same training in one process. docs/shares.md goes through it.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import heterog

BATCH = 96  # of one process; with shares, their sum


def build_model() -> nn.Module:
    hidden = [nn.Linear(32, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU()]
    return nn.Sequential(*hidden, nn.Linear(256, 10))


def build_optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=2e-3)


def loss_fn(model, x, label):
    return F.cross_entropy(model(x), label)


def training() -> dict:
    """For `python -m heterog.export`: what `heterog shares` plans."""
    return {
        "model": build_model,
        "make_inputs": lambda batch: (torch.randn(batch, 32), torch.randint(0, 10, (batch,))),
        "loss_fn": loss_fn,
        "optimizer": build_optimizer,
        "name": "classifier",
    }


def make_data() -> tuple[TensorDataset, TensorDataset]:
    """Points that a random network has labelled; 3,000 to train on, which no batch size divides,
    and 1,000 to test."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4000, 32, generator=generator)
    hidden = torch.randn(32, 16, generator=generator)
    out = torch.randn(16, 10, generator=generator)
    label = ((x @ hidden).relu() @ out).argmax(1)
    return TensorDataset(x[:3000], label[:3000]), TensorDataset(x[3000:], label[3000:])


def accuracy(model, data: TensorDataset) -> float:
    with torch.no_grad():
        return (model(data.tensors[0]).argmax(1) == data.tensors[1]).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shares", metavar="F", help="the file of `heterog shares --out`")
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()
    shares = options.shares
    if shares:
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    train, test = make_data()
    model = build_model()

    # What differs from training with equal shares: the sampler, the weights, and their batches().
    rank = dist.get_rank() if shares else 0
    sampler = heterog.UnevenBatchSampler(train, shares or [BATCH], rank, shuffle=True)
    loader = DataLoader(train, batch_sampler=sampler)
    if shares:
        model = DistributedDataParallel(model)
        weights = heterog.weighted_gradients(model, sampler)
    optimizer = build_optimizer(model.parameters())

    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        total = 0.0
        for x, label in weights.batches(loader) if shares else loader:
            optimizer.zero_grad()
            loss = loss_fn(model, x, label)
            loss.backward()
            optimizer.step()
            total += (weights.loss(loss) if shares else loss).item()
        if rank == 0:
            print(
                f"epoch {epoch}: loss {total / len(sampler):.5f}, "
                f"accuracy {accuracy(model, test):.3f}"
            )
    if shares:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
