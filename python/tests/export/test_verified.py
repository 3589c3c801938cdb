"""What exports is verified: random data keep to what was seen of the inputs when the step was traced."""

import pytest
import torch
from program import run_program
from torch import nn
from torch.nn import functional as F

from heterog import export_training_step

CLASSES = 5


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.layer = nn.Embedding(10, 4), nn.Linear(4, 1)
        self.register_buffer("share", torch.linspace(0.1, 0.3, 10))

    def forward(self, x):
        return self.layer(self.words(x)) * self.share.log()[x].unsqueeze(-1)


class Statistics(nn.Module):
    """What batch normalisation will forget is read after it."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Linear(6, 6), nn.BatchNorm1d(6)

    def forward(self, x):
        old = self.norm.running_var.clone()
        return self.norm(self.layer(x)) * old


def linear():
    return nn.Linear(6, CLASSES)


def values(*others):
    return lambda batch: (torch.randn(batch, 6), *(make(batch) for make in others))


def classes(batch):
    return torch.randint(0, CLASSES, (batch,))


def last(model, x, lengths):
    return model(x.gather(1, (lengths - 1)[:, None, None].expand(-1, 1, 6))[:, 0]).pow(2).mean()


def masked_mean(model, x, mask):
    weights = mask.to(x.dtype)
    return ((model(x) * weights[..., None]).sum(1) / weights.sum(1, keepdim=True)).pow(2).mean()


def chosen(model, x, y, mask):
    scores = model(x)
    own = scores.gather(1, y.masked_fill(mask, 0)[:, None])
    return F.cross_entropy(scores, y) - own.mean()


CASES = {
    "words from 1": (
        Words,
        lambda batch: (torch.randint(1, 11, (batch, 3)),),
        lambda model, x: model(x - 1).pow(2).mean(),
    ),
    "logarithms of shares": (
        linear,
        lambda batch: (torch.rand(batch, 6) * 0.9 + 0.05,),
        lambda model, x: model(x.log()).pow(2).mean(),
    ),
    "roots of amounts": (
        linear,
        lambda batch: (torch.rand(batch, 6) * 40,),
        lambda model, x: model(x.sqrt()).pow(2).mean(),
    ),
    "soft targets": (
        linear,
        values(lambda batch: torch.rand(batch, CLASSES).softmax(1)),
        lambda model, x, y: F.kl_div(model(x).log_softmax(1), y, reduction="batchmean"),
    ),
    "divided by lengths": (
        linear,
        values(lambda batch: torch.randint(1, 9, (batch,))),
        lambda model, x, n: (model(x).pow(2).mean(1) / n).mean(),
    ),
    "the last of a sequence": (
        linear,
        lambda batch: (torch.randn(batch, 7, 6), torch.randint(1, 8, (batch,))),
        last,
    ),
    "means over a mask": (
        linear,
        lambda batch: (torch.randn(batch, 3, 6), torch.arange(3) < torch.randint(1, 4, (batch, 1))),
        masked_mean,
    ),
    "labels chosen by a mask": (
        linear,
        values(classes, lambda batch: torch.rand(batch) < 0.5),
        chosen,
    ),
    "a norm of data": (
        lambda: nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, CLASSES)),
        lambda batch: (torch.randn(batch, 6),),
        lambda model, x: model(x).pow(2).mean(),
    ),
    "statistics of before": (
        Statistics,
        lambda batch: (torch.randn(batch, 6),),
        lambda model, x: model(x).pow(2).mean(),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_exports_is_verified(name, tmp_path):
    model, make_inputs, loss_fn = CASES[name]
    torch.manual_seed(0)
    step = export_training_step(
        model, make_inputs, loss_fn, lambda p: torch.optim.SGD(p, lr=0.01), "case", check=False
    )
    path = tmp_path / "case.json.gz"
    step.save(path)
    for seed in range(3):
        found = run_program(
            ["verify", "--graph", str(path), "--cluster", "local-2cpu", "--batch", "24",
             "--planner", "cp-ar", "--steps", "2", "--seed", str(seed)]
        )  # fmt: skip
        assert found["passed"], name
