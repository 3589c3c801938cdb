"""Micro-batches of each rank's own number in the loop of a framework: FRAMEWORK (ddp, accelerate, fabric,
accelerate-even: accumulation that auto_shares is not told of, resumed: the rest of an epoch after
skip_first_batches). Prints how far parameters are from those of one process on the whole accumulated
batches. Run by test_recipes.py as two ranks."""

import contextlib
import os
import sys

import torch
import torch.distributed as dist
from micro_cases import build, tokens
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import heterog

PARTS, RANKS, EPOCHS = 8, 2, 2
LENGTH = 3 * PARTS * RANKS + 2 * RANKS + 1
kind = sys.argv[1]
size = 4 if kind in ("accelerate-even", "resumed") else 1  # samples of a rank's batch


def dataset() -> TensorDataset:
    generator = torch.Generator().manual_seed(9)
    x = torch.randn(LENGTH, 5, 6, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 4, (LENGTH, 5), generator=generator)
    labels[:, 1:][torch.rand(LENGTH, 4, generator=generator) < 0.5] = -100
    return TensorDataset(x, labels)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def alone() -> list[torch.Tensor]:
    model, data = build(), dataset()
    optimizer = sgd(model)
    begun = 2 * size * RANKS if kind == "resumed" else 0  # samples left out
    for epoch in range(EPOCHS):
        order = torch.randperm(LENGTH, generator=torch.Generator().manual_seed(epoch))
        for rows in _whole(order[begun if epoch == 0 else 0 :]):
            optimizer.zero_grad()
            parts = PARTS if kind == "accelerate-even" else 1
            (sum(tokens(model, data[part]) for part in rows) / parts).backward()
            optimizer.step()
    return list(model.parameters())


def _whole(order):
    if kind == "accelerate-even":  # each global batch has its own mean
        return [chunk.split(size * RANKS) for chunk in order.split(size * RANKS * PARTS)]
    if kind == "resumed":
        return [(rows,) for rows in order.split(size * RANKS)]
    return [(rows,) for rows in order.split(PARTS * RANKS)]


def trained() -> nn.Module:
    model = build()
    optimizer = sgd(model)
    loader = DataLoader(dataset(), batch_size=size, shuffle=True)
    step = lambda batch: tokens(model, batch)  # noqa: E731
    told = {} if kind in ("accelerate-even", "resumed") else {"accumulate": PARTS}
    if kind.startswith(("accelerate", "resumed")):
        from accelerate import Accelerator

        parts = 1 if kind == "resumed" else PARTS
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=parts)
        model, optimizer = accelerator.prepare(model, optimizer)
        loader = heterog.auto_shares(model, loader, step, device=accelerator.device, **told)
        for epoch in range(EPOCHS):
            skips = kind == "resumed" and epoch == 0
            for batch in accelerator.skip_first_batches(loader, 2) if skips else loader:
                with accelerator.accumulate(model):
                    accelerator.backward(tokens(model, batch))
                    optimizer.step()
                    optimizer.zero_grad()
        assert accelerator.gradient_accumulation_steps == parts
        return accelerator.unwrap_model(model)
    if kind == "fabric":
        from lightning.fabric import Fabric

        fabric = Fabric(accelerator="cpu", devices=RANKS, strategy="ddp")
        fabric.launch()
        model, optimizer = fabric.setup(model, optimizer)
        loader = fabric.setup_dataloaders(loader, use_distributed_sampler=False)
        loader = heterog.auto_shares(model, loader, step, **told)
        apart, backward = fabric.no_backward_sync, fabric.backward
    else:
        dist.init_process_group("gloo")
        model = DistributedDataParallel(model)
        loader = heterog.auto_shares(model, loader, step, **told)
        apart, backward = (lambda m: m.no_sync()), (lambda loss: loss.backward())
    for _ in range(EPOCHS):
        for batch in loader:
            with contextlib.nullcontext() if loader.last else apart(model):
                backward(tokens(model, batch) / PARTS)
            if loader.last:
                optimizer.step()
                optimizer.zero_grad()
    return model.module


def main() -> None:
    mine = list(trained().parameters())
    if int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))) == 0:
        pairs = zip(mine, alone(), strict=True)
        off = max(((a - b).norm() / b.norm()).item() for a, b in pairs)
        print(f"off {off:.1e}", flush=True)


if __name__ == "__main__":
    main()
