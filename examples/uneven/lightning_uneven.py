"""Lightning's Trainer:  torchrun --standalone --nproc-per-node 2 lightning_uneven.py"""

import os

import heterog
import lightning
import torch
from points import Points, build_model, report
from torch.nn import functional as F
from torch.utils.data import DataLoader


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.inner = build_model()

    def forward(self, x):
        return self.inner(x)

    def training_step(self, batch, index):
        loss = F.cross_entropy(self(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=2e-3)

    def train_dataloader(self):
        loader = DataLoader(Points(), batch_size=48 // self.trainer.world_size, shuffle=True)
        model = self.trainer.strategy.model
        step = lambda batch: F.cross_entropy(model(batch[0]), batch[1])
        return heterog.auto_shares(model, loader, step)


def main() -> None:
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        strategy="ddp",
        max_epochs=3,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    model = Classifier()
    trainer.fit(model)
    if trainer.is_global_zero:
        report(model.inner)


if __name__ == "__main__":
    main()
