"""A language model under Hugging Face's Trainer, which counts tokens itself; run by test_recipes.py."""

import os

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import heterog


class Sentences(torch.utils.data.Dataset):
    """Half of the tokens are ignored, not the same number in each sentence."""

    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.ids = torch.randint(0, 50, (192, 12), generator=generator)
        self.labels = self.ids.clone()
        self.labels[torch.rand(192, 12, generator=generator) < 0.5] = -100

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {"input_ids": self.ids[index], "labels": self.labels[index]}


def main() -> None:
    torch.manual_seed(0)
    rates = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    sizes = {"vocab_size": 50, "n_positions": 12, "n_embd": 32, "n_layer": 1, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(**sizes, **rates))
    arguments = TrainingArguments(
        output_dir="out/language",
        per_device_train_batch_size=24 // int(os.environ.get("WORLD_SIZE", "1")),
        gradient_accumulation_steps=2,
        num_train_epochs=3,
        learning_rate=1e-2,
        use_cpu=True,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    data = Sentences()
    trainer = heterog.uneven_trainer(Trainer)(model=model, args=arguments, train_dataset=data)
    trainer.train()
    assert trainer.model_accepts_loss_kwargs
    if trainer.is_world_process_zero():
        with torch.no_grad():
            loss = model(input_ids=data.ids, labels=data.labels).loss
        print(f"loss {loss.item():.5f}", flush=True)


if __name__ == "__main__":
    main()
