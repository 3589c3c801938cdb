"""What frameworks do beside a plain step, on ranks of shares 6 and 2: FRAMEWORK (accelerate, fabric,
lightning, trainer, timm: with its loader and its clipping). Prints for each feature how far training goes
from that of one process on the whole batches, as a part of the way it went. Run by
test_framework_features.py as two ranks.

clipping  of gradients by their norm
amp       autocast in bfloat16, of a model in float32
norm      SyncBatchNorm
resume    a new model and a new loader from a checkpoint, after the first of two epochs
reload    a new loader in each epoch (reload_dataloaders_every_n_epochs); of Lightning's Trainer alone
hand      a training_step that optimizes by hand and logs, which is measured whole; of Lightning's Trainer alone
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from cpu_sync_batch_norm import synchronised
from probe_cases import fixed_shares
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import heterog

SHARES = [6, 2]
EPOCHS = 2
CLIP = 0.0625  # Fabric takes it in single precision
QUIET = {"say": None, "rebalance": None}


@dataclass
class Feature:
    clip: float | None = None
    amp: bool = False
    norm: bool = False
    resumed: bool = False
    reloaded: bool = False
    by_hand: bool = False


FEATURES = {
    "clipping": Feature(clip=CLIP),
    "amp": Feature(amp=True),
    "norm": Feature(norm=True),
    "resume": Feature(resumed=True),
    "reload": Feature(reloaded=True),
    "hand": Feature(by_hand=True),
}


def length(feature: Feature) -> int:
    """The rest is no whole batch; of batch normalisation there is none, which wants samples of each rank."""
    return 3 * sum(SHARES) + (0 if feature.norm or feature.by_hand else 3)


def dataset(feature: Feature) -> TensorDataset:
    generator = torch.Generator().manual_seed(9)
    x = torch.randn(length(feature), 6, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 4, (len(x),), generator=generator)
    labels[::3] = -100
    return TensorDataset(x.float() if feature.amp else x, labels)


def build(feature: Feature) -> nn.Module:
    torch.manual_seed(1)
    norm = nn.BatchNorm1d(9) if feature.norm else nn.Identity()
    model = nn.Sequential(nn.Linear(6, 9), norm, nn.Tanh(), nn.Linear(9, 4))
    return model if feature.amp else model.double()


def loss_of(model, batch) -> torch.Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)


def autocast(feature: Feature):
    return torch.autocast("cpu", torch.bfloat16) if feature.amp else contextlib.nullcontext()


def loader(feature: Feature) -> DataLoader:
    return DataLoader(dataset(feature), batch_size=sum(SHARES) // len(SHARES))


def alone(feature: Feature) -> list[torch.Tensor]:
    """One process, by PyTorch alone."""
    model, data = build(feature), dataset(feature)
    optimizer = sgd(model)
    for _ in range(EPOCHS):
        for rows in torch.arange(len(data)).split(sum(SHARES)):
            with autocast(feature):
                loss = loss_of(model, data[rows])
            optimizer.zero_grad()
            loss.backward()
            if feature.clip:
                nn.utils.clip_grad_norm_(model.parameters(), feature.clip)
            optimizer.step()
    return list(model.parameters())


def parts(feature: Feature) -> Iterator[int]:
    """Epochs that are trained by one model."""
    return iter([1, EPOCHS - 1] if feature.resumed else [EPOCHS])


def by_accelerate(feature: Feature) -> nn.Module:
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    for part, epochs in enumerate(parts(feature)):
        AcceleratorState._reset_state()
        accelerator = Accelerator(cpu=True, mixed_precision="bf16" if feature.amp else "no")
        model = build(feature)
        model, optimizer = accelerator.prepare(model, sgd(model))
        synchronised(model)
        if part:
            accelerator.load_state("out/accelerate")
        step = lambda batch: loss_of(model, batch)  # noqa: B023, E731
        batches = heterog.auto_shares(
            model, loader(feature), step, device=accelerator.device, **QUIET
        )
        for _ in range(epochs):
            for batch in batches:
                optimizer.zero_grad()
                accelerator.backward(loss_of(model, batch))
                if feature.clip:
                    accelerator.clip_grad_norm_(model.parameters(), feature.clip)
                optimizer.step()
        accelerator.save_state("out/accelerate")
    return accelerator.unwrap_model(model)


def by_fabric(feature: Feature) -> nn.Module:
    from lightning.fabric import Fabric

    for part, epochs in enumerate(parts(feature)):
        precision = "bf16-mixed" if feature.amp else None
        fabric = Fabric(accelerator="cpu", devices=len(SHARES), strategy="ddp", precision=precision)
        fabric.launch()
        model = build(feature)
        model, optimizer = fabric.setup(model, sgd(model))
        synchronised(model)
        if part:
            fabric.load("out/fabric.ckpt", {"model": model, "optimizer": optimizer})
        batches = fabric.setup_dataloaders(loader(feature), use_distributed_sampler=False)


        def step(batch):
            """In mixed precision Fabric refuses backward passes that it does not run itself."""
            optimizer.zero_grad()  # noqa: B023
            fabric.backward(loss_of(model, batch))  # noqa: B023

        batches = heterog.auto_shares(model, batches, step, **QUIET)
        for _ in range(epochs):
            for batch in batches:
                step(batch)
                if feature.clip:
                    fabric.clip_gradients(model, optimizer, max_norm=feature.clip)
                optimizer.step()
        fabric.save("out/fabric.ckpt", {"model": model, "optimizer": optimizer})
    return model.module


def by_lightning(feature: Feature) -> nn.Module:
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.inner = build(feature)
            self.automatic_optimization = not feature.by_hand
            self.unused = nn.BatchNorm1d(1) if feature.by_hand else None

        def forward(self, x):
            return self.inner(x)

        def training_step(self, batch, _index):
            loss = loss_of(self, batch)
            if not feature.by_hand:
                return loss
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
            self.log("loss", loss)
            return None

        def configure_optimizers(self):
            return sgd(self)

        def train_dataloader(self):
            model = self.trainer.strategy.model
            if feature.norm:
                synchronised(model)
            step = lambda b: loss_of(model, b)  # noqa: E731
            if feature.by_hand:
                step = lambda b: self.trainer.strategy.training_step(b, 0)  # noqa: E731
            batches = heterog.auto_shares(model, loader(feature), step, **QUIET)
            assert batches.samples_per_rank == SHARES
            return batches

    for part in range(len(list(parts(feature)))):
        trainer = lightning.Trainer(
            accelerator="cpu", devices=len(SHARES), logger=False,
            # Which asks the other ranks about `unused`, wherever gradients are summed.
            strategy="ddp_find_unused_parameters_true" if feature.by_hand else "ddp",
            max_epochs=1 if feature.resumed and not part else EPOCHS,
            precision="bf16-mixed" if feature.amp else "64-true", gradient_clip_val=feature.clip,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
            use_distributed_sampler=False, reload_dataloaders_every_n_epochs=int(feature.reloaded),
        )  # fmt: skip
        module = Module()
        trainer.fit(module, ckpt_path="out/lightning.ckpt" if part else None)
        trainer.save_checkpoint("out/lightning.ckpt")
    return module.inner


def by_trainer(feature: Feature) -> nn.Module:
    from accelerate.state import AcceleratorState
    from transformers import Trainer, TrainerCallback, TrainingArguments

    # transformers 4.57 loads an optimizer onto "cpu:0", which PyTorch does not know.
    TrainingArguments.device = property(lambda self: torch.device(self._setup_devices.type))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = build(feature)

        def forward(self, x, labels):
            return {"loss": loss_of(self.inner, (x, labels))}

    class Named(torch.utils.data.Dataset):
        data = dataset(feature)

        def __len__(self):
            return len(self.data)

        def __getitem__(self, row):
            return dict(zip(("x", "labels"), self.data[row], strict=True))

    class Synchronises(TrainerCallback):
        def on_train_begin(self, arguments, state, control, model=None, **_):
            synchronised(model)

    class InOrder(heterog.uneven_trainer(Trainer, **QUIET)):
        def _get_train_sampler(self, *_):
            return torch.utils.data.SequentialSampler(self.train_dataset)

    for part in range(len(list(parts(feature)))):
        AcceleratorState._reset_state()
        model = Model()
        arguments = TrainingArguments(
            output_dir="out/trainer", per_device_train_batch_size=sum(SHARES) // len(SHARES),
            num_train_epochs=1 if feature.resumed and not part else EPOCHS,
            lr_scheduler_type="constant", max_grad_norm=feature.clip or 0, bf16=feature.amp, use_cpu=True,
            save_strategy="epoch" if feature.resumed else "no", report_to=[],
            disable_tqdm=True,
        )  # fmt: skip
        trainer = InOrder(
            model=model, args=arguments, train_dataset=Named(), optimizers=(sgd(model), None),
            callbacks=[Synchronises()],
        )  # fmt: skip
        trainer.train(resume_from_checkpoint=bool(part))
    return model.inner


def by_timm(feature: Feature) -> nn.Module:
    from timm.data.loader import PrefetchLoader
    from timm.utils import CheckpointSaver, dispatch_clip_grad

    class Plain(PrefetchLoader):
        """Without the normalisation of images."""

        def __iter__(self):
            return iter(self.loader)

    if not dist.is_initialized():
        dist.init_process_group("gloo")
    for part, epochs in enumerate(parts(feature)):
        inner = build(feature)
        optimizer = sgd(inner)
        if part:
            kept = torch.load("out/last.pth.tar", weights_only=False)
            inner.load_state_dict(kept["state_dict"])
            optimizer.load_state_dict(kept["optimizer"])
        model = DistributedDataParallel(inner)
        synchronised(model)
        batches = Plain(loader(feature), device=torch.device("cpu"))

        def step(batch):
            with autocast(feature):
                return loss_of(model, batch)  # noqa: B023

        batches = heterog.auto_shares(model, batches, step, **QUIET)
        for _ in range(epochs):
            for batch in batches:
                loss = step(batch)
                optimizer.zero_grad()
                loss.backward()
                if feature.clip:
                    dispatch_clip_grad(model.parameters(), feature.clip)
                optimizer.step()
        if feature.resumed:
            if dist.get_rank() == 0:
                saver = CheckpointSaver(model.module, optimizer, checkpoint_dir="out", recovery_dir="out")
                saver.save_checkpoint(epoch=part)
            dist.barrier()
    return inner


def main() -> None:
    torch.set_num_threads(1)
    os.makedirs("out", exist_ok=True)
    train = globals()[f"by_{sys.argv[1]}"]
    for name, feature in FEATURES.items():
        if (feature.reloaded or feature.by_hand) and sys.argv[1] != "lightning":
            continue
        with fixed_shares(SHARES):
            mine = [p.detach() for p in train(feature).parameters()]
        way = torch.cat([p.detach().flatten() for p in build(feature).parameters()])
        ends = (torch.cat([p.detach().flatten() for p in each]) for each in (mine, alone(feature)))
        ours, theirs = (end - way for end in ends)
        if dist.get_rank() == 0:
            print(f"off {name} {((ours - theirs).norm() / theirs.norm()).item():.1e}", flush=True)
    dist.barrier()
    os._exit(0)  # threads of gloo do not always end with the interpreter


if __name__ == "__main__":
    main()
