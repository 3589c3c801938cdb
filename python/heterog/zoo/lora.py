"""Llama with low-rank adapters (LoRA) over a frozen base, in bfloat16 or of 4 bits (QLoRA): how language models
are tuned on a few cards."""

from functools import partial

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from heterog.export.operators.linear4bit import with_4bit_base

from .spec import Published, Spec, generator

RANK = 16
ALPHA = 32
# Where peft puts adapters of a Llama if nobody says otherwise.
ADAPTED = ("q_proj", "v_proj")
TOKENS = 512


class Adapted(nn.Module):
    """A linear layer whose weight is frozen, with an update of rank `RANK` in float32 beside it."""

    def __init__(self, base: nn.Linear):
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, RANK, bias=False)
        self.up = nn.Linear(RANK, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [B, tokens, in] in the base's dtype; as peft computes it."""
        update = self.up(self.down(x.to(self.down.weight.dtype)))
        return self.base(x) + (update * (ALPHA / RANK)).to(x.dtype)


def llama_lora(layers: int, **sizes) -> nn.Module:
    """The base in bfloat16 and frozen, adapters in float32."""
    config = LlamaConfig(num_hidden_layers=layers, use_cache=False, attn_implementation="sdpa", **sizes)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        model = LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
    model.requires_grad_(False)
    for layer in model.model.layers:
        for name in ADAPTED:
            setattr(layer.self_attn, name, Adapted(getattr(layer.self_attn, name)))
    return model


def llama_qlora(layers: int, **sizes) -> nn.Module:
    """The same over a base of 4 bits a number, but for the embedding and the output layer."""
    return with_4bit_base(llama_lora(layers, **sizes))


def texts(tokens: int, vocabulary: int):
    """Tokens, which are their own labels: [B, tokens]."""

    def make(batch: int) -> tuple:
        return (torch.randint(0, vocabulary, (batch, tokens), generator=generator(batch)),)

    return make


def next_token_loss(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    return model(tokens, labels=tokens).loss


def adapters_alone(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW([p for p in parameters if p.requires_grad], lr=2e-4)


TINY = dict(hidden_size=16, intermediate_size=32, num_attention_heads=2, num_key_value_heads=2, vocab_size=50,
            max_position_embeddings=12)  # fmt: skip


def specs() -> list[Spec]:
    result = []
    # Sizes and counts of Llama 2 (Touvron et al. 2023), whose heads have keys and values of their own.
    for name, layers, hidden, inner, heads, count in (
        ("llama7b_lora", 32, 4096, 11008, 32, 6_738_415_616),
        ("llama13b_lora", 40, 5120, 13824, 40, 13_015_864_320),
    ):
        full = dict(hidden_size=hidden, intermediate_size=inner, num_attention_heads=heads,
                    num_key_value_heads=heads, vocab_size=32000, max_position_embeddings=4096)  # fmt: skip
        adapters = layers * len(ADAPTED) * 2 * RANK * hidden
        source = f"Llama 2's {count:,}, and adapters of rank {RANK} in {len(ADAPTED)} layers of each of {layers}"
        result.append(
            Spec(name, partial(llama_lora, layers, **full), texts(TOKENS, 32000), next_token_loss, adapters_alone,
                 f"{layers} layers, {TOKENS} tokens", Published(count + adapters, source)))  # fmt: skip
        result.append(
            Spec(f"{name}-tiny", partial(llama_lora, layers // 32, **TINY), texts(7, 50), next_token_loss,
                 adapters_alone, f"{layers // 32} layers, 7 tokens"))  # fmt: skip
    full = dict(hidden_size=8192, intermediate_size=28672, num_attention_heads=64, num_key_value_heads=8,
                vocab_size=32000, max_position_embeddings=4096)  # fmt: skip
    for name, layers, sizes, tokens, vocabulary in (
        ("llama70b_qlora", 80, full, TOKENS, 32000),
        ("llama70b_qlora-tiny", 1, TINY | {"num_key_value_heads": 1}, 7, 50),
    ):
        result.append(
            Spec(name, partial(llama_qlora, layers, **sizes), texts(tokens, vocabulary), next_token_loss,
                 adapters_alone, f"{layers} layers, {tokens} tokens"))  # fmt: skip
    return result
