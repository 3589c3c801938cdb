"""Training steps that runners and plain PyTorch go through side by side."""

from dataclasses import dataclass, field

import torch
from draw_models import MODELS
from torch import nn
from torch.nn import functional as F

from heterog.export.check import _copy

BATCH = 12
# Unequal cards. All run on this CPU.
DEVICES = ["V100-PCIE-16GB", "GTX-1080-Ti", "T4"]


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.out = nn.Linear(8 * 4 * 4, 5)

    def forward(self, x):
        x = F.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        return self.out(x.flatten(1))


class Transformer(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.embed = nn.Embedding(23, 16)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 16))
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(16, 23)

    def forward(self, tokens):
        return self.out(self.encoder(self.embed(tokens) * self.scale))


class Tied(nn.Module):
    """One matrix reads tokens in and writes them out."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(19, 8)
        self.hidden = nn.Linear(8, 8)
        self.out = nn.Linear(8, 19, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens):
        return self.out(torch.tanh(self.hidden(self.embed(tokens))))


class Frozen(nn.Module):
    """A layer that is not trained, a buffer that is not saved, and one that nobody reads."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 16).requires_grad_(False)
        self.second = nn.Linear(16, 3)
        self.register_buffer("seen", torch.zeros(()), persistent=False)
        self.register_buffer("unread", torch.arange(3.0))

    def forward(self, x):
        self.seen = self.seen * 0.5 + x.mean()
        return self.second(torch.relu(self.first(x)))


class Records(nn.Module):
    """Buffers that a step writes and never reads; names of inputs, settings and operators; a frozen
    batch normalisation; a hook."""

    def __init__(self):
        super().__init__()
        self.mul = nn.Linear(6, 16)
        self.norm = nn.BatchNorm1d(16).eval()
        with torch.no_grad():
            self.norm.running_mean.normal_()
            self.norm.running_var.uniform_(0.5, 2)
        self.step = nn.Parameter(torch.randn(16))
        self.register_buffer("lr", torch.zeros(16))
        self.register_buffer("mean", torch.zeros(16))
        self.register_buffer("first", torch.zeros(6))
        self.register_buffer("squares", torch.zeros(()))
        self.drop = nn.Dropout(0.5).eval()
        self.out = nn.Linear(16, 3)
        self.out.weight.register_hook(lambda gradient: gradient.clamp(-0.05, 0.05))

    def forward(self, x):
        self.first = x[0]
        x = self.drop(self.norm(self.mul(x)) * self.step)
        self.mean = x.detach().mean(0)
        self.lr = self.mean * 2
        self.squares.copy_(x.detach().square().sum())
        return self.out(x)


def record_inputs(batch):
    return torch.randn(batch, 6), torch.randn(batch, 3), torch.rand(batch, 1)


def record_loss(model, x, mean, step):
    return (model(x) * step - mean).square().mean()


def mlp():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))


def mlp_inputs(batch):
    return torch.randn(batch, 6), torch.randn(batch, 3)


def squares(model, x, y):
    return F.mse_loss(model(x), y)


def image_inputs(batch):
    return torch.randn(batch, 3, 8, 8), torch.randint(0, 5, (batch,))


def classes(model, x, label):
    return F.cross_entropy(model(x), label)


def token_inputs(batch):
    """The last quarter of the labels is padding, more in some samples than in others."""
    label = torch.randint(0, 19, (batch, 8))
    length = torch.randint(3, 9, (batch, 1))
    return torch.randint(0, 19, (batch, 8)), label.masked_fill(torch.arange(8) >= length, -100)


def tokens_loss(model, tokens, label):
    return F.cross_entropy(model(tokens).flatten(0, 1), label.flatten(), ignore_index=-100)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=0.01)


@dataclass
class Case:
    model: object
    make_inputs: object
    loss_fn: object
    optimizer: object
    config: dict = field(default_factory=dict)


CASES = {
    "mlp": Case(mlp, mlp_inputs, squares, sgd),
    "convnet": Case(ConvNet, image_inputs, classes, adamw, {"batch_norm": "exact"}),
    "transformer": Case(
        lambda: Transformer(0.0), token_inputs, tokens_loss, adamw, {"clip_norm": 0.5}
    ),
    "transformer-sgd": Case(
        lambda: Transformer(0.0), token_inputs, tokens_loss, sgd, {"clip_norm": 0.5}
    ),
    "dropout": Case(lambda: Transformer(0.2), token_inputs, tokens_loss, adamw),
    "embedding": Case(
        lambda: nn.Sequential(nn.Embedding(19, 8), nn.Linear(8, 19)),
        token_inputs,
        tokens_loss,
        lambda parameters: torch.optim.Adam(parameters, lr=0.02, weight_decay=0.1, amsgrad=True),
    ),
    "frozen": Case(Frozen, mlp_inputs, squares, adamw),
    "tied": Case(Tied, token_inputs, tokens_loss, sgd),
    "records": Case(Records, record_inputs, record_loss, adamw),
}
CASES |= {name: Case(model, mlp_inputs, squares, sgd) for name, model in MODELS.items()}


def build(case: Case) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The same weights each time."""
    torch.manual_seed(11)
    model = case.model()
    return model, case.optimizer(list(model.parameters()))


def batches(case: Case, count: int) -> list[tuple]:
    made = []
    for number in range(count):
        torch.manual_seed(100 + number)
        made.append(case.make_inputs(BATCH))
    return made


@dataclass
class Trained:
    losses: list[float]
    state: dict
    optimizer: dict


def train_plainly(case: Case, steps: int, dtype=torch.float64) -> Trained:
    """What PyTorch alone makes of it."""
    model, _ = build(case)
    model = _copy(model).to(dtype)
    optimizer = case.optimizer(list(model.parameters()))
    losses = []
    for inputs in batches(case, steps):
        inputs = [x.to(dtype) if x.is_floating_point() else x for x in inputs]
        optimizer.zero_grad()
        loss = case.loss_fn(model, *inputs)
        loss.backward()
        if "clip_norm" in case.config:
            nn.utils.clip_grad_norm_(model.parameters(), case.config["clip_norm"])
        optimizer.step()
        losses.append(loss.item())
    return Trained(losses, model.state_dict(), optimizer.state_dict())
