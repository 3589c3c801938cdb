"""Lightning Fabric:  torchrun --standalone --nproc-per-node 2 fabric_uneven.py"""

import os

import heterog
import torch
from lightning.fabric import Fabric
from points import Points, build_model, report
from torch.nn import functional as F
from torch.utils.data import DataLoader


def main() -> None:
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    fabric = Fabric(accelerator="cpu", devices=ranks, strategy="ddp")
    fabric.launch()
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    loader = DataLoader(Points(), batch_size=48 // fabric.world_size, shuffle=True)
    model, optimizer = fabric.setup(model, optimizer)
    loader = fabric.setup_dataloaders(loader)
    loader = heterog.auto_shares(model, loader, lambda b: F.cross_entropy(model(b[0]), b[1]))

    model.train()
    for _ in range(3):
        for x, label in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), label)
            fabric.backward(loss)
            optimizer.step()

    if fabric.global_rank == 0:
        report(model.module)


if __name__ == "__main__":
    main()
