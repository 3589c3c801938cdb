"""Small random models under random plans against plain PyTorch, and those that once differed."""

import collections
import sys
from pathlib import Path

import pytest
import torch
from model_check import check
from model_generator import generate, written
from rounds import rounds
from runner_support import STEPS  # noqa: F401  skips where nothing is built

sys.path.append(str(Path(__file__).resolve().parents[3] / "scripts"))

from fuzz.models import fuzz  # noqa: E402

MODELS = rounds(80)


@pytest.fixture(autouse=True)
def _own_default_dtype():
    """The models set it to float64; the tests after them have another."""
    before = torch.get_default_dtype()
    yield
    torch.set_default_dtype(before)


def test_random_models_train_as_in_pytorch(capsys):
    """Not by refusing them: at most a fifth. `scripts/fuzz/models.py` runs thousands."""
    kinds = fuzz(first=0, count=MODELS, jobs=2, strategies=2, verbose=False)
    report = capsys.readouterr().out
    assert kinds["different"] == kinds["failed"] == 0, report
    assert kinds["refused"] <= MODELS / 5, report
    assert kinds["invalid"] + kinds["unstable"] <= MODELS / 25, report


def test_a_seed_is_one_model():
    for seed in range(50):
        assert generate(seed) == generate(seed)
    sources = collections.Counter(generate(seed).source for seed in range(50))
    assert len(sources) == 50


LAYER = ("self.layer = nn.Linear(4, 3)",)
TABLE = (*LAYER, "self.table = nn.Parameter(torch.randn(40, 3))")
# Its samples are not alike: rows that are mixed up make another loss.
LOSS = "((model(x) - x[:, :3]) ** 2).mean()"


def rows(expression: str) -> dict:
    return {"lines": ["h = self.layer(x)", f"h = {expression}"], "loss": LOSS, "init": LAYER}


def table(expression: str) -> dict:
    lines = ["h = self.layer(x)", f"h = h + {expression}"]
    return {"lines": lines, "loss": LOSS, "init": TABLE}


def buffer(line: str, value: str = "torch.zeros(())") -> dict:
    init = (*LAYER, f"self.register_buffer('kept', {value})")
    return {"lines": ["h = self.layer(x)", line], "loss": LOSS, "init": init}


def pairs(loss: str) -> dict:
    """A loss of `h`, with a row for every sample of the batch."""
    return {"lines": ["h = self.layer(x)"], "loss": loss, "init": LAYER}


def queue(*lines: str) -> dict:
    """Lines that put `keys` into a queue of 24, whose old keys are compared with."""
    init = (
        *LAYER, "self.register_buffer('queue', torch.randn(24, 3))",
        "self.register_buffer('at', torch.zeros((), dtype=torch.long))",
    )  # fmt: skip
    before = ["h = self.layer(x)", "keys, old = h.detach(), self.queue.clone().detach()"]
    after = ["h = h @ old.t()"]
    return {"lines": [*before, *lines, *after], "loss": "(h ** 2).mean()", "init": init}


def kernel(a: str, b: str) -> str:
    return f"({a}[:, None] - {b}[None]).pow(2).sum(-1).neg().exp()"


# Each was trained wrongly, or ended in something that is no refusal.
FINDS = {
    "rows backwards": rows("h[torch.arange(B - 1, -1, -1)]"),
    "rows shifted": rows("h[(torch.arange(B) + 1) % B]"),
    "rows shifted back": rows("h.index_select(0, (torch.arange(B) + B - 1) % B)"),
    "rows doubled": rows("h[(torch.arange(B) * 2) % B]"),
    "rows clamped": rows("h[torch.arange(B).clamp(max=B - 2)]"),
    "the last row": rows("h + h[torch.full((B,), B - 1)].sum(0)"),
    "a table from behind": table("self.table[B - 1 - torch.arange(B)]"),
    "a table's row": table("self.table[B - 1]"),
    "a table's selected row": table("self.table.select(0, B + 1)"),
    "a table's summed row": table("self.table.cumsum(0)[B]"),
    "a table's rows after B": table("self.table[torch.arange(B, B + 4)].mean(0)"),
    "a table's window": table("self.table[B:B + 3].sum(0)"),
    "a table rolled": table("self.table.roll(B, 0)[0]"),
    "a buffer nobody reads": buffer("self.kept.copy_(h.detach().mean())"),
    "a norm in eval": {
        "lines": ["h = self.norm(self.layer(x))"], "loss": LOSS,
        "init": (*LAYER, "self.norm = nn.BatchNorm1d(3)"), "setup": ("model.norm.eval()",),
    },
    "dropout in eval": {
        "lines": ["h = self.drop(self.layer(x))"], "loss": LOSS,
        "init": (*LAYER, "self.drop = nn.Dropout(0.5)"), "setup": ("model.drop.eval()",),
    },
    "a norm of sequences first": {
        "lines": ["h = self.norm(self.layer(s)).movedim(1, 0).flatten(1)"],
        "loss": "(model(x, s) ** 2).sum() / 10", "inputs": {"s": "torch.randn(3, batch, 4)"},
        "init": (*LAYER, "self.norm = nn.LayerNorm(3)"),
    },
    "a circular convolution": {
        "lines": ["h = self.conv(self.layer(x)[:, None])"], "loss": "(model(x) ** 2).mean()",
        "init": (*LAYER, "self.conv = nn.Conv1d(1, 2, 3, padding=1, padding_mode='circular')"),
    },
    "a view of what is written in place": rows(
        "F.relu(h.clone(), inplace=True).flatten(0, 1).view(B, 3)"
    ),
    "a norm that the forward pass keeps": {
        "lines": ["h = self.layer(x) + self.words(k)"], "loss": "(model(x, k) ** 2).mean()",
        "inputs": {"k": "torch.randint(0, 9, (batch,))"},
        "init": (*LAYER, "self.words = nn.Embedding(9, 3, max_norm=0.5)"),
    },
    "a hook on a parameter": {
        "lines": ["h = self.layer(x)"], "loss": LOSS, "init": LAYER,
        "setup": ("model.layer.weight.register_hook(lambda g: 2 * g)",),
    },
    "a mean over pairs": pairs("(h[:, None] - h[None]).pow(2).mean()"),
    "a mean over pairs of two": pairs("(h[:, None] - h[None]).pow(2).sum() / (len(h) * (len(h) - 1))"),
    "a pairwise ranking loss": pairs(
        "F.softplus(h[None, :, 0] - h[:, None, 0]).mul(x[:, None, 0] > x[None, :, 0]).mean()"
    ),
    "a maximum mean discrepancy": pairs(
        f"({kernel('h', 'h')}.sum() - len(h)) * (1 / (len(h) * (len(h) - 1)))"
        f" - 2 * {kernel('h', 'x[:, :3]')}.mean()"
    ),
    "an independence criterion": pairs("((h @ h.t()) * (x @ x.t())).sum() / (len(h) - 1) ** 2"),
    "a loss of all similarities": pairs("F.mse_loss(h @ h.t(), x @ x.t())"),
    "a loss of alignments": {
        "lines": ["h = self.layer(x).log_softmax(2).movedim(1, 0)"],
        "loss": "F.ctc_loss(h, y, times, lengths)", "init": LAYER,
        "inputs": {
            "x": "torch.randn(batch, 6, 4)", "y": "torch.randint(1, 3, (batch, 2))",
            "times": "torch.randint(5, 7, (batch,))", "lengths": "torch.randint(0, 3, (batch,))",
        },
    },
    "a queue of keys": queue(
        "self.queue.index_copy_(0, (self.at + torch.arange(B)) % 24, keys)",
        "self.at.add_(B).remainder_(24)",
    ),
    "a queue that is joined anew": queue("self.queue = torch.cat([keys, self.queue[:-B]])"),
    "a queue that is joined at its end": queue("self.queue = torch.cat([self.queue[B:], keys])"),
    "a queue that is shifted": queue(
        "self.queue[B:] = self.queue[:-B].clone()", "self.queue[:B] = keys"
    ),
    "a queue that is shifted back": queue(
        "self.queue[:-B] = self.queue[B:].clone()", "self.queue[-B:] = keys"
    ),
    "a queue that is cut": queue("self.queue.copy_(torch.cat([keys, self.queue])[:24])"),
    "a queue that is doubled but for B rows": queue("self.queue[:-B] *= 2"),
    "an encoder that follows": {
        "lines": [
            "with torch.no_grad():",
            "    for own, other in zip(self.layer.parameters(), self.other.parameters()):",
            "        other.data = other.data * 0.9 + own.data * 0.1",
            "h = self.layer(x) - self.other(x)",
        ],
        "loss": "(h ** 2).mean()", "init": (*LAYER, "self.other = nn.Linear(4, 3)"),
        "setup": ("model.other.requires_grad_(False)",),
    },
    "a branch on B": rows("h * 2 if B % 2 else h"),
    "the smaller of B and 3": rows("h * min(B, 3)"),
}  # fmt: skip
# What is done by refusing it, with a line that says why.
REFUSED = {
    "a norm that the forward pass keeps", "a branch on B", "a queue that is doubled but for B rows"
}  # fmt: skip


@pytest.mark.parametrize("name", FINDS)
def test_what_once_differed(name, tmp_path):
    outcome = check(written(**FINDS[name]), 3, tmp_path, strategies=4)
    assert outcome.kind == ("refused" if name in REFUSED else "equal"), outcome
