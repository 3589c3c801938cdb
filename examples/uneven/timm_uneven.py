"""In the style of timm's train.py:  torchrun --standalone --nproc-per-node 2 timm_uneven.py"""

import heterog
import timm
import torch
import torch.distributed as dist
from timm.data import create_loader
from timm.optim import create_optimizer_v2
from timm.utils import dispatch_clip_grad
from torch import nn
from torch.nn.parallel import DistributedDataParallel as NativeDDP
from torchvision.datasets import FakeData

SIZE = (3, 32, 32)


def main() -> None:
    dist.init_process_group("gloo")
    device = torch.device("cpu")
    torch.manual_seed(0)
    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, patch_size=8, depth=1, num_classes=10
    )
    model = NativeDDP(model)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3)
    loader_train = create_loader(
        FakeData(192, SIZE),
        input_size=SIZE,
        batch_size=48 // dist.get_world_size(),
        is_training=True,
        no_aug=True,
        num_workers=0,
        distributed=True,
        persistent_workers=False,
        device=device,
    )
    train_loss_fn = nn.CrossEntropyLoss()

    step = lambda batch: train_loss_fn(model(batch[0]), batch[1])
    loader_train = heterog.auto_shares(model, loader_train, step)
    for epoch in range(3):
        if hasattr(loader_train.sampler, "set_epoch"):
            loader_train.sampler.set_epoch(epoch)
        model.train()
        for input, target in loader_train:
            loss = train_loss_fn(model(input), target)
            optimizer.zero_grad()
            loss.backward()
            dispatch_clip_grad(model.parameters(), 1.0)
            optimizer.step()

    if dist.get_rank() == 0:
        images = torch.randn(8, *SIZE, generator=torch.Generator().manual_seed(1))
        with torch.no_grad():
            loss = train_loss_fn(model.module(images), torch.arange(8))
        print(f"loss {loss.item():.5f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
