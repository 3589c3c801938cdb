"""Small models that decide something by the number of their samples, drawn from a seed."""

import random

import torch
from torch import nn

# What a model learns of its batch.
_SIZES = [
    lambda x: x.shape[0],
    lambda x: x.size(0),
    lambda x: len(x),
    lambda x: x.size()[0],
    lambda x: x.numel() // x.shape[1],
]


def _chunks(function):
    return lambda x, size, n: torch.cat([function(part) for part in x.split(n)])


# What it does by that, and by a number n; `size` is the batch.
_KINDS = {
    "above": lambda x, size, n: x * 2 if size > n else x,
    "at most": lambda x, size, n: x.sin() if size <= n else x,
    "equal": lambda x, size, n: x * 2 if size == n else x,
    "among": lambda x, size, n: x * 2 if size in (n, n + 3, 2 * n) else x,
    "multiple": lambda x, size, n: x * 2 if size % n == 0 else x,
    "remainder": lambda x, size, n: x[size % n :].mean() + x if size % n == 1 else x,
    "chained": lambda x, size, n: x * 2 if n < size < n + 9 else x,
    "loop": lambda x, size, n: x * (1 + sum(1 for _ in range(size // n))),
    "least": lambda x, size, n: x * min(size, n),
    "first rows": lambda x, size, n: x + x[:n].mean(0),
    "without mean": _chunks(lambda part: part - part.mean(0)),
    "ghost norm": _chunks(lambda part: part / (1 + part.std(0, unbiased=False))),
    "table": lambda x, size, n: x * {n: 3.0}.get(size, 1.0),
    "text": lambda x, size, n: x * {str(n): 3.0}.get(f"{size}", 1.0),
    "bits": lambda x, size, n: x * (1 + (size.bit_length() > n.bit_length())),
    "over": lambda x, size, n: x / size,
    "fraction": lambda x, size, n: x * (size // 2),
    "none": lambda x, size, n: x.tanh(),
}


class Dependent(nn.Module):
    def __init__(self, seed: int):
        super().__init__()
        drawn = random.Random(seed)
        kinds = list(_KINDS)
        self.kinds = [kinds[seed % len(kinds)]] + drawn.sample(kinds, drawn.randrange(2))
        self.numbers = [drawn.choice((2, 5, 7, 9, 16, 33, 80, 100)) for _ in self.kinds]
        self.sizes = [drawn.randrange(len(_SIZES)) for _ in self.kinds]
        self.linear = nn.Linear(3, 2)

    def forward(self, x):
        x = self.linear(x)
        for kind, number, size in zip(self.kinds, self.numbers, self.sizes, strict=True):
            x = _KINDS[kind](x, _SIZES[size](x), number)
        return x

    def describe(self) -> str:
        return ", ".join(f"{kind} {number}" for kind, number in zip(self.kinds, self.numbers))
