"""Accelerate:  torchrun --standalone --nproc-per-node 2 accelerate_uneven.py"""

import heterog
import torch
from accelerate import Accelerator
from points import Points, build_model, report
from torch.nn import functional as F
from torch.utils.data import DataLoader


def main() -> None:
    accelerator = Accelerator(cpu=True)
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    loader = DataLoader(Points(), batch_size=48 // accelerator.num_processes, shuffle=True)
    model, optimizer = accelerator.prepare(model, optimizer)
    step = lambda batch: F.cross_entropy(model(batch[0]), batch[1])
    loader = heterog.auto_shares(model, loader, step, device=accelerator.device)

    model.train()
    for _ in range(3):
        for x, label in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), label)
            accelerator.backward(loss)
            optimizer.step()

    if accelerator.is_main_process:
        report(accelerator.unwrap_model(model))
    accelerator.end_training()


if __name__ == "__main__":
    main()
