"""Functions that a trace takes in another form than PyTorch's: distances, CTC, tensor.data = value."""

import pytest
import torch
from support import Case, compare, export
from torch import nn
from torch.nn import functional as F

from heterog import ExportError

CLASSES = 5
STEPS = 7


class Centres(nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.layer = nn.Linear(6, 4)
        self.centres = nn.Parameter(torch.randn(rows, 4))


def rows(batch):
    return (torch.randn(batch, 6),)


@pytest.mark.parametrize(
    ("centres", "function", "operator"),
    [
        (5, lambda h, c: torch.cdist(h, h.flip(0) + c[:1]), "_cdist_forward"),
        (5, lambda h, c: torch.cdist(h, c), "_cdist_forward"),
        (5, lambda h, c: torch.cdist(h, c, p=1), "_cdist_forward"),
        (64, lambda h, c: torch.cdist(h, c), "_euclidean_dist"),
        (5, lambda h, c: torch.cdist(torch.cat([h] * 30), c), "_euclidean_dist"),
        (5, lambda h, c: torch.cdist(h, c, compute_mode="use_mm_for_euclid_dist"), "_euclidean_dist"),
    ],
)
def test_distances_are_computed_alike_at_every_batch(centres, function, operator):
    case = Case(
        lambda: Centres(centres),
        rows,
        lambda model, x: function(model.layer(x), model.centres).min(1)[0].mean(),
        options={"double": True},
    )
    graph = compare(case, 1e-9)
    assert graph["holds"] == [[2, None]]
    assert [op["op"] for op in graph["ops"] if "dist" in op["op"] and op["phase"] == "forward"] == [
        f"aten.{operator}.default"
    ]


def spoken(batch):
    times, lengths = torch.randint(1, STEPS + 1, (batch,)), torch.randint(0, 4, (batch,))
    times[0], lengths[0] = STEPS, 3
    times[1], lengths[1] = STEPS, 0
    # Behind its labels a row holds anything.
    targets = torch.randint(1, CLASSES, (batch, 3))
    targets[0] = 2  # the same label again wants a blank between
    targets = targets.where(torch.arange(3) < lengths[:, None], -1)
    return torch.randn(batch, STEPS, 6), targets, times, lengths


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_alignments_are_pytorchs(reduction):
    def loss(model, x, y, times, lengths):
        scores = model(x.transpose(0, 1)).log_softmax(2)
        each = F.ctc_loss(scores, y, times, lengths, reduction=reduction, zero_infinity=True)
        return each.sum()

    graph = compare(Case(lambda: nn.Linear(6, CLASSES), spoken, loss, options={"double": True}), 1e-10)
    assert graph["holds"] == [[2, None]]


def test_a_loss_of_alignments_as_a_module_with_another_blank():
    blank = CLASSES - 1

    def make_inputs(batch):
        return (
            torch.randn(STEPS, batch, 6), torch.randint(0, blank, (batch, 2)),
            torch.full((batch,), STEPS), torch.randint(1, 3, (batch,), dtype=torch.int32),
        )  # fmt: skip

    def loss(model, x, y, times, lengths):
        return nn.CTCLoss(blank=blank)(model(x).log_softmax(2), y, times, lengths)

    compare(Case(lambda: nn.Linear(6, CLASSES), make_inputs, loss, options={"double": True}), 1e-10)


def refused(make_inputs, loss_fn) -> str:
    with pytest.raises(ExportError) as caught:
        export(Case(lambda: nn.Linear(6, CLASSES), make_inputs, loss_fn))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_alignments_that_a_step_cannot_take():
    def in_one_row(model, x, y):
        full = torch.full((y.numel() // 2,), 2)
        return F.ctc_loss(model(x).log_softmax(2), y, full + 5, full)

    make_inputs = lambda batch: (torch.randn(STEPS, batch, 6), torch.ones(2 * batch).long())  # noqa: E731
    assert "a step takes log_probs of (T, N, C) and targets of (N, S)" in refused(make_inputs, in_one_row)

    def listed(model, x, y):
        lengths = [1 + i % 2 for i in range(len(y))]
        return F.ctc_loss(model(x).log_softmax(2), y, [STEPS] * len(y), lengths)

    make_inputs = lambda batch: (torch.randn(STEPS, batch, 6), torch.ones(batch, 2).long())  # noqa: E731
    assert "target_lengths are numbers that are not all the same" in refused(make_inputs, listed)


def test_data_of_a_tensor_is_written():
    class Follows(nn.Module):
        def __init__(self):
            super().__init__()
            self.own, self.other = nn.Linear(6, 4), nn.Linear(6, 4).requires_grad_(False)

        def forward(self, x):
            with torch.no_grad():
                for own, other in zip(self.own.parameters(), self.other.parameters()):
                    other.data = other.data * 0.9 + own.data * 0.1
            return (self.own(x) - self.other(x)).pow(2).mean()

    compare(Case(Follows, rows, lambda model, x: model(x), options={"double": True}))

    def own(model, x):
        model.weight.data = model.weight.data.clamp(-1, 1)
        return model(x).mean()

    assert "parameter weight is written while the step runs" in refused(rows, own)

    def narrower(model, x):
        h = model(x).detach()
        h.data = h.data[:, :2]
        return (model(x)[:, :2] * h).mean()

    assert "keeps both" in refused(rows, narrower)
