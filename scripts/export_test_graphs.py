"""Writes the graphs under tests/data, which tests of the C++ library read.

    PYTHONPATH=python .venv/bin/python scripts/export_test_graphs.py

Small steps that between them have every loss, optimizer and shape that exactness is proved for.
"""

from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

import heterog

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "data"
WORDS, CLASSES, LENGTH, WIDTH = 23, 5, 6, 16


class Normalised(nn.Module):
    """A small residual network with batch normalisation of images and of vectors, with and without
    weights."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8))
        self.block = nn.Sequential(
            nn.Conv2d(8, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8, momentum=0.3),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.BatchNorm2d(8, affine=False),
        )
        self.head = nn.Sequential(nn.Linear(8, 12), nn.BatchNorm1d(12), nn.Tanh(), nn.Linear(12, 5))

    def forward(self, image):
        x = self.stem(image).relu()
        x = (x + self.block(x)).relu()
        return self.head(x.mean((2, 3)))


class Mlp(nn.Sequential):
    def __init__(self, outputs=CLASSES):
        super().__init__(nn.Linear(8, WIDTH), nn.GELU(), nn.Linear(WIDTH, outputs))


class Convolutions(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 8, 3), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, CLASSES),
        )  # fmt: skip


class Transformer(nn.Module):
    """Token by token over a vocabulary that is also the output layer (tied)."""

    def __init__(self, dropout=0.0, tied=True):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.1)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, dropout, batch_first=True)
            for _ in range(2)
        )
        self.output = nn.Linear(WIDTH, WORDS, bias=False)
        if tied:
            self.output.weight = self.words.weight

    def forward(self, tokens):
        x = self.words(tokens) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.output(x)


class PartlyTied(nn.Module):
    """The output layer is the table of words beside a matrix of its own, as in MobileBERT: one product
    gives the gradient of the one, and a part of the other's."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH // 2)
        self.widen = nn.Linear(WIDTH // 2, WIDTH)
        self.rest = nn.Parameter(torch.randn(WIDTH // 2, WORDS) * 0.1)

    def forward(self, tokens):
        x = torch.tanh(self.widen(self.words(tokens)))
        return x @ torch.cat([self.words.weight.t(), self.rest])


class SequenceFirst(nn.Module):
    """Sequence before batch, as XLNet and recurrent networks have it."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 2)
        self.norm = nn.LayerNorm(WIDTH)
        self.output = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        x = self.words(tokens.t())
        x = self.norm(x + self.attention(x, x, x, need_weights=False)[0])
        return self.output(x).transpose(0, 1)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.output = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        return self.output(self.lstm(self.words(tokens))[0])


class Drawing(nn.Module):
    """Random numbers of every kind: of each sample, of each element, of sequences before the batch,
    of no sample, and of the batch as a whole."""

    def __init__(self):
        super().__init__()
        self.levels = nn.Embedding(5, 8)
        self.into = nn.Linear(8, WIDTH)
        self.slopes = nn.RReLU()
        self.code = nn.Linear(WIDTH, WIDTH)
        self.channels = nn.Dropout2d(0.25)
        self.elements = nn.AlphaDropout(0.1)
        self.output = nn.Linear(WIDTH // 2, CLASSES)

    def forward(self, x):
        x = x + self.levels(torch.randint(0, 5, (x.shape[0],)))
        share = torch.rand(x.shape[0], 1)
        x = share * x + (1 - share) * x[torch.randperm(x.shape[0])]
        x = self.slopes(self.into(x * torch.normal(1.0, 0.1, (8,))))
        sequence = x.reshape(-1, 4, 4).transpose(0, 1)
        sequence = sequence + 0.1 * torch.randn(sequence.shape)
        x = self.channels(sequence.transpose(0, 1).reshape(-1, 4, 2, 2)).flatten(1)
        x = x * torch.empty(x.shape[0], 1).bernoulli_(0.8) + self.elements(x)
        mean, deviation = self.code(x).chunk(2, 1)
        code = mean + torch.randn_like(mean) * torch.exp(0.5 * deviation)
        gate = torch.bernoulli(deviation.detach().sigmoid())
        choice = torch.multinomial(deviation.detach().softmax(1), 2)
        chosen = code.gather(1, choice).mean(1, keepdim=True)
        return self.output(F.gumbel_softmax(code) * (1 + gate) + chosen)


def vectors(batch):
    return torch.randn(batch, 8), torch.randint(0, CLASSES, (batch,))


def images(batch):
    return torch.randn(batch, 3, 8, 8), torch.randint(0, CLASSES, (batch,))


def texts(batch):
    labels = torch.randint(0, WORDS, (batch, LENGTH))
    labels[:, 0] = -100
    return torch.randint(0, WORDS, (batch, LENGTH)), labels


def classify(model, x, label):
    return F.cross_entropy(model(x), label)


def smoothed(model, x, label):
    return F.cross_entropy(model(x), label, label_smoothing=0.1)


def by_word(model, tokens, labels):
    return F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten(), ignore_index=-100)


def masked_mean(model, tokens, labels):
    """A mean over the places that a mask leaves, counted in the step."""
    each = F.cross_entropy(
        model(tokens).flatten(0, 1), labels.clamp(min=0).flatten(), reduction="none"
    )
    mask = (labels >= 0).flatten().to(each.dtype)
    return (each * mask).sum() / mask.sum()


def squares(model, x, label):
    return F.mse_loss(model(x), F.one_hot(label, CLASSES).to(x.dtype))


def penalised(model, x, label):
    """A penalty that counts once, however the batch is cut."""
    weights = sum((p * p).sum() for p in model.parameters())
    return F.cross_entropy(model(x), label) + 1e-2 * weights


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def sgd_decay(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-3, nesterov=True)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=1e-2, weight_decay=1e-2)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-2)


def dropping_transformer():
    return Transformer(dropout=0.2, tied=False)


def last(tensor_or_model):
    return tensor_or_model.to(memory_format=torch.channels_last)


def images_channels_last(batch):
    pixels, labels = images(batch)
    return last(pixels), labels


# Name: model, inputs, loss, optimizer, options of the export.
GRAPHS = {
    "exact_batch_norm": (
        Normalised,
        lambda batch: (torch.randn(batch, 3, 6, 6), torch.randint(0, 5, (batch,))),
        classify,
        lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-3),
        {"batch_norm": "exact"},
    ),
    "mlp_sgd": (Mlp, vectors, classify, sgd, {}),
    "mlp_adam_squares": (Mlp, vectors, squares, adam, {}),
    "mlp_penalised": (Mlp, vectors, penalised, sgd_decay, {}),
    "mlp_clipped": (Mlp, vectors, smoothed, adamw, {"clip_norm": 0.05}),
    "convolutions_adamw": (Convolutions, images, smoothed, adamw, {"fused_update": False}),
    "batch_norm_sgd": (Normalised, images, classify, sgd, {}),
    "transformer_tied": (Transformer, texts, by_word, adamw, {"clip_norm": 0.1}),
    "transformer_dropout": (dropping_transformer, texts, masked_mean, adam, {}),
    "transformer_bfloat16": (Transformer, texts, by_word, sgd, {"autocast": "bfloat16"}),
    "transformer_float16": (
        Transformer, texts, by_word, adamw, {"autocast": "float16", "attention": "math"},
    ),
    "masters_bfloat16": (
        Transformer, texts, by_word, adamw, {"param_dtype": "bfloat16", "reduce_dtype": "bfloat16"},
    ),
    "partly_tied": (PartlyTied, texts, by_word, adamw, {}),
    "channels_last": (lambda: last(Normalised()), images_channels_last, classify, sgd, {}),
    "sequence_first": (SequenceFirst, texts, by_word, adam, {}),
    "random_numbers": (Drawing, vectors, classify, sgd, {}),
    "lstm": (Recurrent, texts, masked_mean, sgd_decay, {"fused_update": False}),
}


def export(name: str) -> heterog.TrainingStep:
    model, make_inputs, loss, optimizer, options = GRAPHS[name]
    torch.manual_seed(0)
    return heterog.export_training_step(model, make_inputs, loss, optimizer, name, **options)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in GRAPHS:
        export(name).save(FOLDER / f"{name}.json.gz")
        print(FOLDER / f"{name}.json.gz")


if __name__ == "__main__":
    main()
