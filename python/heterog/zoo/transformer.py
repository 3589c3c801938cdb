"""The encoder-decoder Transformer of Vaswani et al. (2017), with explicit attention."""

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from .sizes import TRANSFORMER_SEQUENCE, TRANSFORMER_VOCABULARY
from .spec import Published, Spec, adam, generator

PADDING = 0  # the word that fills a short sentence


@dataclass(frozen=True)
class TransformerSizes:
    layers: int  # of the encoder, and again of the decoder
    width: int = 512
    heads: int = 8
    hidden: int = 2048  # inside the feed-forward blocks
    vocabulary: int = TRANSFORMER_VOCABULARY
    sequence: int = 64  # tokens
    dropout: float = 0.1


class Attention(nn.Module):
    """Multi-head attention of [B, T, width] over [B, S, width]."""

    def __init__(self, sizes: TransformerSizes):
        super().__init__()
        self.heads = sizes.heads
        self.query = nn.Linear(sizes.width, sizes.width, bias=False)
        self.key = nn.Linear(sizes.width, sizes.width, bias=False)
        self.value = nn.Linear(sizes.width, sizes.width, bias=False)
        self.output = nn.Linear(sizes.width, sizes.width, bias=False)
        self.dropout = nn.Dropout(sizes.dropout)

    def split(self, x):
        """[B, T, width] → [B, heads, T, width / heads]"""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x, memory, hidden_positions):
        query, key, value = (
            self.split(self.query(x)), self.split(self.key(memory)), self.split(self.value(memory)))
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
        weights = scores.masked_fill(hidden_positions, -1e9).softmax(-1)
        return self.output((self.dropout(weights) @ value).transpose(1, 2).flatten(2))


class FeedForward(nn.Sequential):
    def __init__(self, sizes: TransformerSizes):
        super().__init__(
            nn.Linear(sizes.width, sizes.hidden), nn.ReLU(), nn.Dropout(sizes.dropout),
            nn.Linear(sizes.hidden, sizes.width),
        )  # fmt: skip


class Layer(nn.Module):
    """Blocks with a residual around each, normalised after the sum."""

    def __init__(self, sizes: TransformerSizes, decodes: bool):
        super().__init__()
        self.self_attention = Attention(sizes)
        self.source_attention = Attention(sizes) if decodes else None
        self.feed_forward = FeedForward(sizes)
        self.norms = nn.ModuleList(nn.LayerNorm(sizes.width) for _ in range(3 if decodes else 2))
        self.dropout = nn.Dropout(sizes.dropout)

    def forward(self, x, hidden_positions, memory=None, hidden_memory=None):
        x = self.norms[0](x + self.dropout(self.self_attention(x, x, hidden_positions)))
        if self.source_attention is not None:
            x = self.norms[1](x + self.dropout(self.source_attention(x, memory, hidden_memory)))
        return self.norms[-1](x + self.dropout(self.feed_forward(x)))


def sinusoids(positions: int, width: int, device: torch.device) -> torch.Tensor:
    """Sines and cosines of geometrically growing wavelengths: [positions, width]."""
    frequency = torch.arange(0, width, 2, device=device) * (-math.log(10000.0) / width)
    angle = torch.arange(positions, device=device).unsqueeze(1) * frequency.exp()
    return torch.cat([angle.sin(), angle.cos()], dim=1)


class Transformer(nn.Module):
    """Source and target tokens [B, S] → logits [B, S, vocabulary]; one matrix embeds and predicts."""

    def __init__(self, sizes: TransformerSizes):
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.width)
        self.encoder = nn.ModuleList(Layer(sizes, False) for _ in range(sizes.layers))
        self.decoder = nn.ModuleList(Layer(sizes, True) for _ in range(sizes.layers))
        self.dropout = nn.Dropout(sizes.dropout)

    def embed(self, tokens):
        """Tables are computed, not kept as buffers, so that the graph's file says all of them."""
        width = self.embedding.embedding_dim
        positions = sinusoids(tokens.size(1), width, tokens.device)
        return self.dropout(self.embedding(tokens) * math.sqrt(width) + positions)

    def forward(self, source, target):
        hidden_source = (source == PADDING)[:, None, None, :]
        length = target.size(1)
        future = torch.ones(length, length, dtype=torch.bool, device=target.device).triu(1)
        memory = self.embed(source)
        for layer in self.encoder:
            memory = layer(memory, hidden_source)
        x = self.embed(target)
        for layer in self.decoder:
            x = layer(x, future, memory, hidden_source)
        return nn.functional.linear(x, self.embedding.weight)


def sentence_pairs(sequence: int, vocabulary: int):
    """Source, target and next-word tokens, each [B, sequence], the ends of some padded."""

    def make(batch: int) -> tuple:
        rng = generator(batch)
        source, target, following = (
            torch.randint(1, vocabulary, (batch, sequence), generator=rng) for _ in range(3))
        source[:, -1] = PADDING
        following[:, -1] = PADDING
        return source, target, following

    return make


def translation_loss(model: nn.Module, source, target, following) -> torch.Tensor:
    logits = model(source, target)
    return nn.functional.cross_entropy(
        logits.flatten(0, 1), following.flatten(), ignore_index=PADDING)


def transformer_spec(name: str, sizes: TransformerSizes, note: str, published=None) -> Spec:
    return Spec(name, partial(Transformer, sizes), sentence_pairs(sizes.sequence, sizes.vocabulary),
                translation_loss, adam(1e-4), note, published)  # fmt: skip


def specs() -> list[Spec]:
    def tiny(layers):
        return TransformerSizes(layers, width=16, heads=2, hidden=32, vocabulary=50, sequence=7)

    def note(sizes):
        return (f"{sizes.layers} + {sizes.layers} layers, width {sizes.width}, {sizes.heads} heads, "
                f"{sizes.hidden} hidden, {sizes.sequence} tokens")  # fmt: skip

    base = TransformerSizes(6, sequence=TRANSFORMER_SEQUENCE[6])
    big = TransformerSizes(24, width=1024, heads=16, hidden=4096,
                           sequence=TRANSFORMER_SEQUENCE[24])
    celeritas = TransformerSizes(12, width=2048, heads=16, hidden=8192,
                                 sequence=TRANSFORMER_SEQUENCE[12])
    return [
        transformer_spec("transformer6", base, note(base),
                         Published(62_000_000, "AutoSync, Table 1 (the base model)", 0.02)),
        transformer_spec("transformer6-tiny", tiny(1), note(tiny(1))),
        transformer_spec("transformer24", big, note(big)),
        transformer_spec("transformer24-tiny", tiny(2), note(tiny(2))),
        transformer_spec("transformer12", celeritas, note(celeritas) + ", as Celeritas trains"),
        transformer_spec("transformer12-tiny", tiny(1), note(tiny(1))),
    ]  # fmt: skip
