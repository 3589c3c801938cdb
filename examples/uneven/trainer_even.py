"""Hugging Face's Trainer:  torchrun --standalone --nproc-per-node 2 trainer_even.py"""

import os

from points import Points, build_model, report
from torch import nn
from torch.nn import functional as F
from transformers import Trainer, TrainingArguments


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = build_model()

    def forward(self, x, labels):
        logits = self.inner(x)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


def main() -> None:
    model = Classifier()
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    arguments = TrainingArguments(
        output_dir="out/trainer",
        per_device_train_batch_size=24 // ranks,
        gradient_accumulation_steps=2,
        num_train_epochs=3,
        learning_rate=2e-3,
        use_cpu=True,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=Points(named=True))
    trainer.train()
    if trainer.is_world_process_zero():
        report(model.inner)


if __name__ == "__main__":
    main()
