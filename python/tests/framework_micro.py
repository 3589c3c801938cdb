"""Micro-batches of each rank's own number in the loop of a framework: FRAMEWORK (ddp, accelerate, fabric,
lightning, timm: a loop like that of its train.py, accelerate-few: steps in which a rank has one
micro-batch, accelerate-even: accumulation that auto_shares is not told of, resumed: the rest of an
epoch after skip_first_batches). Prints how far parameters are from those of one process on the whole
accumulated batches. Run by test_recipes.py as two ranks."""

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

kind = sys.argv[1]
PARTS, RANKS, EPOCHS = 2 if kind == "accelerate-few" else 8, 2, 2
LENGTH = (4 if kind == "lightning" else 1) * 3 * PARTS * RANKS + 2 * RANKS + 1
size = 4 if kind in ("accelerate-even", "resumed", "lightning") else 1  # samples of a rank's batch


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
    return [(rows,) for rows in order.split(size * PARTS * RANKS)]


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
    if kind == "lightning":
        return lightning(model, loader)
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
    if kind == "timm":
        timm(model, loader, optimizer)
        return model.module
    for _ in range(EPOCHS):
        for batch in loader:
            with contextlib.nullcontext() if loader.last else apart(model):
                backward(tokens(model, batch) / PARTS)
            if loader.last:
                optimizer.step()
                optimizer.zero_grad()
    return model.module


def lightning(model, loader):
    """All ranks have as many micro-batches, of other sizes: of 4 samples where they are even."""
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.inner, self.updates = model, 0

        def forward(self, x):
            return self.inner(x)

        def training_step(self, batch, _index):
            return tokens(self.inner, batch)

        def on_before_optimizer_step(self, _optimizer):
            self.updates += 1

        def configure_optimizers(self):
            return sgd(self)

        def train_dataloader(self):
            wrapped = self.trainer.strategy.model
            step = lambda batch: tokens(wrapped, batch)  # noqa: E731
            return heterog.auto_shares(
                wrapped, loader, step, accumulate=self.trainer.accumulate_grad_batches
            )

    trainer = lightning.Trainer(
        accelerator="cpu", devices=RANKS, strategy="ddp", max_epochs=EPOCHS, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, accumulate_grad_batches=PARTS,
        use_distributed_sampler=False, enable_model_summary=False,
    )  # fmt: skip
    module = Module()
    trainer.fit(module)
    assert module.updates == trainer.global_step == EPOCHS * -(-LENGTH // (size * PARTS * RANKS))
    return module.inner


def timm(model, loader, optimizer) -> None:
    """As train_one_epoch of its train.py counts, but for the first line."""
    grad_accum_steps = loader.accumulated
    updates = 0
    for _ in range(EPOCHS):
        accum_steps = grad_accum_steps
        last_accum_steps = len(loader) % accum_steps
        updates_per_epoch = (len(loader) + accum_steps - 1) // accum_steps
        last_batch_idx = len(loader) - 1
        last_batch_idx_to_accum = len(loader) - last_accum_steps
        for batch_idx, batch in enumerate(loader):
            last_batch = batch_idx == last_batch_idx
            need_update = last_batch or (batch_idx + 1) % accum_steps == 0
            update_idx = batch_idx // accum_steps
            if batch_idx >= last_batch_idx_to_accum:
                accum_steps = last_accum_steps
            with contextlib.nullcontext() if need_update else model.no_sync():
                (tokens(model, batch) / accum_steps).backward()
            assert update_idx == updates % updates_per_epoch
            if need_update:
                optimizer.step()
                optimizer.zero_grad()
                updates += 1
    assert updates == EPOCHS * updates_per_epoch == EPOCHS * -(-LENGTH // (PARTS * RANKS))


def main() -> None:
    mine = list(trained().parameters())
    if int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))) == 0:
        pairs = zip(mine, alone(), strict=True)
        off = max(((a - b).norm() / b.norm()).item() for a, b in pairs)
        print(f"off {off:.1e}", flush=True)


if __name__ == "__main__":
    main()
