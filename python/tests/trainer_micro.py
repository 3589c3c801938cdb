"""A language model under Hugging Face's Trainer, one text a rank and 8 accumulated, half of its tokens
ignored; prints how far its parameters are from those of one process on the whole accumulated batches.
Run by test_recipes.py as two ranks: KIND is "tokens" (the Trainer counts them) or "mean" (it does not).
"""

import sys

import torch
from language_trainer import Sentences
from torch import nn
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import heterog

PARTS, RANKS = 8, 2
kind = sys.argv[1]


class Means(nn.Module):
    """Its loss is a mean over the tokens of what it is given, whatever the Trainer counts."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, input_ids, labels):
        logits = self.inner(input_ids=input_ids).logits
        return {"loss": F.cross_entropy(logits.flatten(0, 1), labels.flatten())}


def build() -> nn.Module:
    torch.manual_seed(0)
    rates = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    sizes = {"vocab_size": 50, "n_positions": 12, "n_embd": 16, "n_layer": 1, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(**sizes, **rates)).double()
    for parameter in model.transformer.wte.parameters():
        parameter.requires_grad = False
    return model if kind == "tokens" else Means(model)


def texts() -> torch.utils.data.Dataset:
    return torch.utils.data.Subset(Sentences(), range(4 * PARTS * RANKS + 5))


def alone() -> list[torch.Tensor]:
    """By PyTorch, in the order that a loader of this seed has."""
    model, data = build(), texts()
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-2, weight_decay=0.0)
    for epoch in range(2):
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(42 + epoch))
        for rows in order.split(PARTS * RANKS):
            batch = torch.utils.data.default_collate([data[row] for row in rows])
            optimizer.zero_grad()
            items = (batch["labels"] != -100).sum()  # as the Trainer counts them
            counted = {"num_items_in_batch": items} if kind == "tokens" else {}
            model(**batch, **counted)["loss"].backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
    return parameters


def main() -> None:
    arguments = TrainingArguments(
        output_dir="out/micro",
        per_device_train_batch_size=1,
        gradient_accumulation_steps=PARTS,
        num_train_epochs=2,
        learning_rate=1e-2,
        lr_scheduler_type="constant",
        include_num_input_tokens_seen=True,
        use_cpu=True,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    model = build()
    trainer = heterog.uneven_trainer(Trainer)(model=model, args=arguments, train_dataset=texts())
    trainer.train()
    assert arguments.gradient_accumulation_steps == PARTS
    if trainer.is_world_process_zero():
        mine = [p for p in model.parameters() if p.requires_grad]
        off = max(
            ((a - b).norm() / b.norm()).item()
            for a, b in zip(mine, alone(), strict=True)
            if b.norm() > 0
        )
        print(f"updates {trainer.state.global_step} tokens {trainer.state.num_input_tokens_seen}")
        print(f"off {off:.1e}", flush=True)


if __name__ == "__main__":
    main()
