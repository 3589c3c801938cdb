"""The models that the GPU kit exports, proves and times, in plain PyTorch: the exporter on the machine
that prepares and eager PyTorch on the one with the GPU have the same.

Every function returns what `heterog export FILE.py:FUNCTION` takes. None of the zoo's graphs uses
PyTorch's attention (they date from papers that wrote it out); all language models here do.
"""

import functools

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """A Transformer's layer over [B, T, width], norms before (GPT) or behind (BERT) what they norm."""

    def __init__(self, width, heads, rate, causal):
        super().__init__()
        self.heads, self.rate, self.causal = heads, rate, causal
        self.first_norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(rate)

    def attention(self, x, mask):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        rate = self.rate if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=rate, is_causal=self.causal)
        return self.dropout(self.mix(y.transpose(1, 2).flatten(2)))

    def feed_forward(self, x):
        return self.dropout(self.narrow(F.gelu(self.widen(x))))

    def forward(self, x, mask):
        if self.causal:
            x = x + self.attention(self.first_norm(x), mask)
            return x + self.feed_forward(self.second_norm(x))
        x = self.first_norm(x + self.attention(x, mask))
        return self.second_norm(x + self.feed_forward(x))


class Language(nn.Module):
    """GPT-2's form (causal, the head tied to the words) or BERT's (padding masks, a head of its own).
    tokens [B, T] (and present [B, T], which are no padding) → logits [B, T, words]."""

    def __init__(self, layers, width, heads, length, words, rate, causal):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, rate, causal) for _ in range(layers))
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(rate)
        self.head = None if causal else nn.Linear(width, words)

    def forward(self, tokens, present=None):
        x = self.words(tokens) + self.places(torch.arange(tokens.size(1), device=tokens.device))
        x = self.dropout(x)
        mask = None if present is None else present[:, None, None, :]
        for block in self.blocks:
            x = block(x, mask)
        x = self.norm(x)
        return F.linear(x, self.words.weight) if self.head is None else self.head(x)


def language(name, layers, width, heads, length, words, rate=0.0, causal=True, padded=False):
    def make_inputs(batch):
        rng = torch.Generator().manual_seed(batch)
        tokens, labels = (torch.randint(words, (batch, length), generator=rng) for _ in range(2))
        if not padded:
            return tokens, labels
        present = torch.rand(batch, length, generator=rng) < 0.9
        present[:, 0] = True
        return tokens, labels, present

    def plain(model, tokens, labels):
        return F.cross_entropy(model(tokens).flatten(0, 1).float(), labels.flatten())

    def with_padding(model, tokens, labels, present):
        return F.cross_entropy(model(tokens, present).flatten(0, 1).float(), labels.flatten())

    return dict(
        name=name,
        model=functools.partial(Language, layers, width, heads, length, words, rate, causal),
        make_inputs=make_inputs,
        loss_fn=with_padding if padded else plain,
        optimizer=functools.partial(torch.optim.AdamW, lr=1e-4, fused=True),
    )


def vision(name, channels_last):
    import torchvision

    order = torch.channels_last if channels_last else torch.contiguous_format

    def make_inputs(batch):
        rng = torch.Generator().manual_seed(batch)
        images = torch.randn(batch, 3, 224, 224, generator=rng).contiguous(memory_format=order)
        return images, torch.randint(0, 1000, (batch,), generator=rng)

    return dict(
        name=name,
        model=lambda: torchvision.models.resnet50().to(memory_format=order),
        make_inputs=make_inputs,
        loss_fn=lambda model, images, labels: F.cross_entropy(model(images).float(), labels),
        optimizer=functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=1e-4, fused=True),
    )


def allow_tf32():
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True


def gpt2():
    return language("gpt2", 12, 768, 12, 1024, 50304)


def gpt2_tf32():
    allow_tf32()
    return gpt2() | {"name": "gpt2_tf32"}


def bert_large():
    """As people pretrain it: dropout of 0.1 everywhere, padding masks."""
    return language("bert_large", 24, 1024, 16, 512, 30528, rate=0.1, causal=False, padded=True)


def bert_large_no_dropout_tf32():
    allow_tf32()
    return language("bert_large_no_dropout_tf32", 24, 1024, 16, 512, 30528, causal=False, padded=True)


def resnet50():
    return vision("resnet50", channels_last=False)


def resnet50_channels_last():
    return vision("resnet50_channels_last", channels_last=True)


# On these every kernel of attention is proved: rows of 36 (a multiple of 4) and of 37 (of nothing),
# heads of 16 and of 6 numbers (kernels want a multiple of 8), masks, dropout.
def tiny_causal():
    return language("tiny_causal", 1, 32, 2, 36, 40)


def tiny_causal_odd():
    return language("tiny_causal_odd", 1, 32, 2, 37, 40)


def tiny_mask():
    return language("tiny_mask", 1, 32, 2, 36, 40, causal=False, padded=True)


def tiny_mask_odd():
    return language("tiny_mask_odd", 1, 32, 2, 37, 40, causal=False, padded=True)


def tiny_dropout():
    return language("tiny_dropout", 1, 32, 2, 36, 40, rate=0.1, causal=False, padded=True)


def tiny_head6():
    return language("tiny_head6", 1, 12, 2, 36, 40)
