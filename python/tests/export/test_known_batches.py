"""A graph says for which batches it holds; of others a step is refused, or traced once before it runs."""

import copy

import pytest
import sympy
import torch
from batch_dependent import Dependent
from rounds import thorough
from support import Case, export, given_values
from torch import nn
from torch.nn import functional as F

import heterog
from heterog import ExportError, HeterogError
from heterog.export.graph.known_batches import holds_at, in_words, joined, ranges
from heterog.export.interpreter import run
from heterog.run.untraced import Untraced

PROBED = (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15, 16, 17, 18, 19, 20, 27, 32, 33, 34, 49, 63, 64, 65, 70, 79,
          80, 81, 99, 100, 101, 128, 129, 161, 200)  # fmt: skip


def rows(batch):
    return (torch.randn(batch, 3),)


def mean_square(model, x):
    return model(x).square().mean()


class Net(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.function = function

    def forward(self, x):
        return self.function(self.linear(x))


def held(function, **options):
    return export(Case(lambda: Net(function), rows, mean_square, options={"check": False} | options))[
        "holds"
    ]


@pytest.mark.parametrize("seed", thorough(range(54), but=set(range(0, 54, 3))))
def test_where_a_graph_is_said_to_hold_it_is_the_model(seed):
    """A drawn model, exported as for 12 samples: its graph at all batches that it is said to hold for."""
    torch.manual_seed(seed)
    model = Dependent(seed).double()
    options = {"check": False, "double": True, "batch": 12}
    try:
        graph = export(Case(lambda: model, rows, mean_square, options=options))
    except ExportError as refusal:
        assert "batch" in str(refusal)
        return
    known = [batch for batch in PROBED if holds_at(graph["holds"], batch)]
    assert set(graph["traced_batches"]).issubset(known)
    for batch in known:
        x = torch.randn(batch, 3, dtype=torch.float64)
        expected = mean_square(model, x)
        found = run(graph, given_values(graph, model, {"x": x}), batch)[graph["loss"]]
        assert torch.isclose(found, expected, rtol=1e-12), (model.describe(), batch, graph["holds"])


@pytest.mark.parametrize(
    ("function", "options", "holds"),
    [
        (torch.relu, {}, [[2, None]]),
        (lambda x: x / len(x), {}, [[2, None]]),
        (lambda x: (x @ x.t()).sum() / (len(x) * (len(x) - 1)), {}, [[2, None]]),
        (lambda x: (x @ x.t()).sum() / (len(x) * min(len(x), 100)), {}, [[2, 100]]),
        (lambda x: x * 2 if len(x) > 100 else x, {}, [[2, 100]]),
        (lambda x: x * 2 if x.shape[0] > 100 else x, {"batches": (101, 102, 200)}, [[101, None]]),
        (lambda x: x * 2 if x.shape[0] == 9 else x, {}, [[2, 8], [10, None]]),
        (lambda x: torch.cat([c - c.mean(0) for c in x.split(16)]), {"batch": 12}, [[2, 16]]),
        (lambda x: x * min(len(x), 48), {"batch": 48}, [[2, 48]]),
        (lambda x: x + x[1:].mean(0), {}, [[4, None]]),
        # What cannot be computed with a symbol is known where it was traced.
        (lambda x: x * {9: 2}.get(len(x), 1), {}, [[2, 3], [64, 64]]),
        (lambda x: x * (1 + (x.shape[0].bit_length() > 7)), {}, [[2, 3], [64, 64]]),
    ],
)
def test_for_which_batches_a_graph_holds(function, options, holds):
    assert held(function, **options) == holds


def test_a_rule_that_repeats_is_known_as_far_as_it_was_tried():
    found = held(lambda x: x * 2 if x.shape[0] % 7 == 0 else x)
    assert found[:3] == [[2, 6], [8, 13], [15, 20]] and len(found) == 64
    assert [n for n in range(2, 400) if not holds_at(found, n)] == list(range(7, 400, 7))


def test_layers_hold_for_every_batch():
    blocks = [
        nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 2)),
        nn.Sequential(nn.Unflatten(1, (3, 1)), nn.TransformerEncoderLayer(1, 1, 4, batch_first=True)),
        nn.Sequential(nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 4, 2), nn.MaxPool1d(2), nn.Flatten()),
    ]
    for block in blocks:
        case = Case(lambda block=block: block, rows, mean_square, options={"check": False})
        assert export(case)["holds"] == [[2, None]]
    graph = export(Case(
        lambda: nn.LSTM(3, 4, num_layers=2, batch_first=True),
        lambda batch: (torch.randn(batch, 5, 3),),
        lambda model, x: model(x)[0].square().mean(), options={"check": False},
    ))  # fmt: skip
    assert graph["holds"] == [[2, None]]


def test_ranges_of_conditions():
    b = sympy.Symbol("b", integer=True, positive=True)
    assert ranges([], b, (2, 3, 64)) == [(2, None)]
    assert ranges([b <= 16], b, (2, 3, 12)) == [(2, 16)]
    assert ranges([b < 16, sympy.Ne(b, 9)], b, (2, 3, 12)) == [(2, 8), (10, 15)]
    assert ranges([3 * b >= 20], b, (2, 3, 64)) == [(2, 3), (7, None)]
    assert ranges([sympy.false], b, (2, 3, 64)) == [(2, 3), (64, 64)]
    assert ranges([sympy.Eq(sympy.Mod(b, 3), 0), b <= 9], b, (3, 6, 12)) == [
        (3, 3), (6, 6), (9, 9), (12, 12),
    ]  # fmt: skip
    assert joined([(5, 6), (2, 3), (4, 4), (9, None), (12, 14)]) == [(2, 6), (9, None)]
    plain = ranges([b > 3, 2 * b <= 33, sympy.Ne(b, 9)], b, (4, 5, 12))
    assert plain == [(4, 8), (10, 16)]
    assert all(type(end) is int for pair in plain for end in pair)  # as files hold them
    assert in_words([[2, 16], [18, 18], [100, None]]) == "2 to 16, 18, 100 and more"


# ---- in a runner ----


def runner(function, batch=12, **config):
    torch.manual_seed(0)
    model = Net(function).double()
    settings = {"batch": batch, "planner": "cp-ar", "double": True, "check": False} | config
    # The runner's model is in training itself: what is compared with it is a copy.
    return copy.deepcopy(model), heterog.get_runner(
        model, rows, mean_square, torch.optim.SGD(model.parameters(), lr=0.1), "cpu:2", settings
    )


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.cat([part - part.mean(0) for part in x.split(16)]),
        lambda x: torch.cat([F.batch_norm(p, None, None, training=True) for p in x.split(16)]),
        lambda x: x * 2 if len(x) > 19 else x,
        lambda x: x * 2 if x.shape[0] == 20 else x,
        lambda x: x * 2 if x.shape[0] % 20 == 0 else x,
        lambda x: x * {20: 2.0}.get(len(x), 1.0),
    ],
)
def test_a_runner_refuses_a_batch_of_which_the_model_makes_another_step(function, tmp_path):
    _, made = runner(function, cache=str(tmp_path), batch_norm="exact")
    with made:
        made.step((torch.randn(12, 3),))
        with pytest.raises(HeterogError, match="batch: 20 samples: the model makes another step"):
            made.step((torch.randn(20, 3),))
        assert made.steps_done == 1  # and goes on
        made.step((torch.randn(12, 3),))


def test_a_batch_that_is_not_known_is_traced_once(tmp_path, monkeypatch):
    """Who looks something up by the batch: nothing is known but what was traced."""
    model, made = runner(lambda x: x * {9: 2.0}.get(len(x), 1.0), cache=str(tmp_path))
    exports = []
    untraced = made._lengths._check.__self__
    again = untraced._again
    monkeypatch.setattr(untraced, "_again", lambda *given: exports.append(given) or again(*given))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with made:
        for _ in range(2):
            x = torch.randn(20, 3, dtype=torch.float64)
            optimizer.zero_grad()
            loss = mean_square(model, x)
            loss.backward()
            optimizer.step()
            assert abs(made.step((x,)) - loss.item()) < 1e-12
    assert exports == [(0, (2, 3, 20))]


def test_a_graph_of_another_step_is_told_from_the_one_that_runs():
    """Without a runner: what is said of batches that are not known."""
    def steps(function):
        def again(_number, batches):
            return heterog.export_training_step(
                Net(function), rows, mean_square, lambda p: torch.optim.SGD(p, lr=0.1), "case",
                batches=batches, check=False,
            )  # fmt: skip

        return Untraced([again(0, (2, 3, 12))], again)

    looked_up = steps(lambda x: x * {20: 2.0}.get(len(x), 1.0))
    looked_up.check(0, 12)
    looked_up.check(0, 19)  # traced, and the same
    with pytest.raises(HeterogError, match=r"20 samples: .*\(2 to 3, 12, 19\): "):
        looked_up.check(0, 20)
    with pytest.raises(HeterogError, match="20 samples: the model makes another step"):
        steps(lambda x: torch.cat([part - part.mean(0) for part in x.split(16)])).check(0, 20)
