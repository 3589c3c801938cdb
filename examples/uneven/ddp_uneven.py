"""Plain DistributedDataParallel:  torchrun --standalone --nproc-per-node 2 ddp_uneven.py"""

import heterog
import torch
import torch.distributed as dist
from points import Points, build_model, report
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def main() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(build_model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    data = Points()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=48 // dist.get_world_size(), sampler=sampler)

    loader = heterog.auto_shares(model, loader, lambda b: F.cross_entropy(model(b[0]), b[1]))
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, label in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), label)
            loss.backward()
            optimizer.step()

    if dist.get_rank() == 0:
        report(model.module)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
