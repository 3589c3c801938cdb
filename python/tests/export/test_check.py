"""An export compares its graph with eager PyTorch, and names what differs."""

import functools
import os

import pytest
import torch
from support import BATCH, Case, build, export, given_values
from torch import nn
from torch.nn import functional as F

import heterog
from heterog import ExportError
from heterog.export import check
from heterog.export.check import check_batches
from heterog.export.command import main
from heterog.export.interpreter import run
from heterog.export.optimizer import fused_update
from heterog.export.state import python_state


def vectors(batch):
    return torch.randn(batch, 6), torch.randn(batch, 4)


def squares(model, x, y):
    return F.mse_loss(model(x), y)


def mlp():
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Dropout(0.4), nn.Linear(5, 4))


def exported(case: Case) -> heterog.TrainingStep:
    return heterog.export_training_step(
        case.model, case.make_inputs, case.loss_fn, case.optimizer, "case", **case.options
    )


def adam(parameters):
    return torch.optim.AdamW(parameters, lr=0.01, amsgrad=True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "in float64, dropout keeping every element"),
        ({"double": True}, "in float64, dropout keeping every element"),
        ({"dropout": False}, "in float64, without dropout"),
        ({"autocast": "bfloat16"}, "in float64, dropout keeping every element"),
        ({"clip_norm": 0.1}, "in float64, dropout keeping every element"),
        ({"batch_norm": "exact"}, "in float64, dropout keeping every element"),
    ],
)
def test_what_is_checked_is_said(options, said):
    step = exported(Case(mlp, vectors, squares, adam, options))
    assert step.checked == f"equal to PyTorch at batches 5 and 6, {said}"


def test_dropout_in_functions_and_recurrent_layers_is_checked():
    class Drops(nn.Module):
        def __init__(self, kind, rate):
            super().__init__()
            self.rate = rate
            self.recurrent = kind(6, 4, num_layers=3, dropout=0.25, batch_first=True)

        def forward(self, x):
            x = self.recurrent(x[:, None])[0][:, 0]
            return F.dropout(F.dropout(x, 0.3), self.rate) + F.dropout(x, 0.5)

    for kind, dropout in ((nn.LSTM, True), (nn.GRU, True), (nn.RNN, True), (nn.LSTM, False)):
        model = functools.partial(Drops, kind, 1.0 if dropout else 0.4)
        case = Case(model, vectors, squares, adam, {"dropout": dropout})
        step = exported(case)
        assert step.checked.startswith("equal to PyTorch")
        drops = [op for op in step.graph["ops"] if op["op"] == "aten.native_dropout.default"]
        assert len(drops) == (5 if dropout else 0)


def test_a_model_that_insists_on_single_precision_is_checked_in_it():
    class Single(nn.Linear):
        def forward(self, x):
            return super().forward(x).float().exp()

    step = exported(Case(lambda: Single(6, 4), vectors, squares))
    assert "in its own precision without the updated parameters" in step.checked


class Counts(nn.Module):
    """Trains by a number that no graph sees, and that is nowhere in Python."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 4)
        self.file = os.memfd_create("calls")

    def __deepcopy__(self, memo):
        made = type(self)()
        made.load_state_dict(self.state_dict())
        return made.to(self.linear.weight.dtype)

    def forward(self, x):
        first = os.lseek(self.file, 0, os.SEEK_END) == 0
        os.write(self.file, b".")
        return self.linear(x) * (1 if first else 2)


class CountsInPython(nn.Linear):
    def __init__(self):
        super().__init__(6, 4)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x) * (1 if self.calls == 1 else 2)


class Remembers(nn.Module):
    """Keeps an alias of its weight, which the optimizer then changes."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 4)
        self.register_buffer("seen", torch.zeros(4, 6))

    def forward(self, x):
        self.seen = self.linear.weight.detach()
        return self.linear(x)


def test_the_first_tensor_that_differs_is_named():
    with pytest.raises(ExportError, match="at batch [0-9]+ the loss is .* off PyTorch's") as caught:
        exported(Case(Counts, vectors, squares))
    assert "--no-check (check=False)" in str(caught.value)
    with pytest.raises(ExportError, match="at batch 5 buffer seen after the step is"):
        exported(Case(Remembers, vectors, squares))
    assert exported(Case(Counts, vectors, squares, options={"check": False})).checked == (
        "not checked against PyTorch"
    )


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        ("aten.mse_loss", None),
        ("aten.addmm.default", "the loss is"),
        ("aten.sum.dim_IntList", "the gradient of"),
        ("aten.addcmul.default", "parameter 0.weight after the step is"),
        ("aten._fused_adamw.tensor_lr", "parameter 0.weight after the step is"),
    ],
)
def test_a_wrong_operator_is_found(operator, message, monkeypatch):
    """Every operator of this name is 1% off in the exported step."""
    named = check.run

    def wrong(*args, instead, **kwargs):
        def off(*operands, **keywords):
            right = fused_update.operators().get(operator) or check.operator_of(operator)
            results = right(*operands, **keywords)
            return [r * 1.01 for r in results] if isinstance(results, list) else results * 1.01

        return named(*args, instead=instead | {operator: off}, **kwargs)

    monkeypatch.setattr(check, "run", wrong)
    case = Case(lambda: nn.Sequential(nn.Linear(6, 4)), vectors, squares, adam)
    case.options = {"fused_update": "fused" in operator}
    if message is None:
        exported(case)
    else:
        with pytest.raises(ExportError, match=message):
            exported(case)


def test_large_steps_are_checked_when_asked(monkeypatch):
    for limit in ("MOST_ELEMENTS", "MOST_ELEMENTS_OF_FEW"):
        monkeypatch.setattr(check, limit, getattr(check, limit) / 1000)
    wide = Case(lambda: nn.Linear(6, 5_000), lambda b: (torch.randn(b, 6),), lambda m, x: m(x).sum())
    line = exported(wide).checked
    assert line.startswith("not checked against PyTorch: 4.8e+05 operations and ")
    assert "more than a few seconds; a second step is traced as the first; --check" in line
    wide.options = {"check": True}
    assert exported(wide).checked.startswith("equal to PyTorch")


def test_a_model_that_cannot_be_copied_is_said():
    class Locked(nn.Linear):
        def __deepcopy__(self, memo):
            raise TypeError("no copies")

    case = Case(lambda: Locked(6, 4), vectors, squares)
    assert "the model cannot be copied: TypeError: no copies" in exported(case).checked
    case.options = {"check": True}
    with pytest.raises(ExportError, match="check: the model cannot be copied"):
        exported(case)


@pytest.mark.parametrize(("few", "said"), [(1e9, ""), (0, "other operators")])
def test_of_large_steps_two_of_few_samples_are_checked_or_how_the_second_is_traced(
    few, said, monkeypatch
):
    """What a counter in a large model does is found, or said."""
    monkeypatch.setattr(check, "MOST_FLOPS", 0)
    monkeypatch.setattr(check, "MOST_FLOPS_OF_FEW", few)
    line = exported(Case(mlp, vectors, squares, adam)).checked
    counts = Case(Counts, vectors, squares)
    if few:
        assert line.startswith("equal to PyTorch in two steps of 2 samples, in its own precision")
        with pytest.raises(ExportError, match="at batch [0-9]+ the loss is .* off PyTorch's"):
            exported(counts)
    else:
        assert "a second step is traced as the first" in line
        # Where the model has values, such a counter is refused (test_python_state.py).
        monkeypatch.setattr(python_state, "_has_values", lambda model: False)
        counts = Case(CountsInPython, vectors, squares)
        assert "what forward keeps in attributes makes a second step run other" in exported(counts).checked


def test_a_runner_says_that_nothing_was_checked(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(check, "MOST_FLOPS", 0)
    monkeypatch.setattr(check, "MOST_FLOPS_OF_FEW", 0)
    model = mlp()
    with heterog.get_runner(
        model, vectors, squares, torch.optim.SGD(model.parameters(), lr=0.1), "cpu:2",
        {"batch": 4, "planner": "cp-ar", "cache": str(tmp_path), "name": "large"},
    ):  # fmt: skip
        assert "heterog: large: the exported step is not checked against" in capsys.readouterr().err


def test_batches_of_the_check_are_new_and_of_both_parities():
    every = [[2, None]]
    assert check_batches([2, 3, 64], every) == [5, 6]
    assert check_batches([4, 5, 64], every) == [7, 8]
    assert check_batches([2, 3, 5], every) == [7, 8]
    assert check_batches([100, 101, 102], every) == [103, 104]
    assert check_batches([2, 3, 64], [[2, 4], [6, None]]) == [7, 8]
    assert check_batches([2, 3, 64], [[2, 3], [64, 64]]) == [3, 64]


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [([], 2, "the loss is"), (["--check"], 2, "the loss is"), (["--no-check"], 0, "not checked")],
)
def test_the_command_writes_nothing_that_differs(options, code, said, tmp_path, capsys):
    source = tmp_path / "counts.py"
    source.write_text(
        "import sys\n"
        "from test_check import Counts, squares, vectors\n"
        "import torch\n"
        "def training():\n"
        "    return dict(model=Counts, make_inputs=vectors, loss_fn=squares,\n"
        "                optimizer=lambda p: torch.optim.SGD(p, lr=0.1))\n"
    )
    out = tmp_path / "counts.json.gz"
    assert main([f"{source}:training", "--out", str(out), *options]) == code
    assert said in capsys.readouterr().err
    assert out.exists() == (code == 0)


def test_an_update_that_magnifies_rounding():
    """Gradients of key biases are 0 but for rounding, which AdamW divides by itself."""
    transformers = pytest.importorskip("transformers")
    config = transformers.OPTConfig(
        vocab_size=60, hidden_size=32, ffn_dim=64, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=16, word_embed_proj_dim=32,
    )  # fmt: skip
    def sentences(batch):
        words, mask = torch.randint(4, 59, (batch, 12)), torch.ones(batch, 12, dtype=torch.int64)
        mask[::2, -2:] = 0
        return words, mask, torch.where(mask == 1, words, -100)

    step = heterog.export_training_step(
        lambda: transformers.OPTForCausalLM(config).train(),
        sentences,
        lambda model, x, mask, y: model(input_ids=x, attention_mask=mask, labels=y).loss,
        lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
        "opt",
    )
    assert step.checked.startswith("equal to PyTorch at batches 5 and 6, in float64")


def test_a_view_of_what_lies_otherwise_than_in_the_trace():
    """As what a kernel makes may, on another machine or at another size."""
    case = Case(
        lambda: nn.Linear(12, 2), lambda batch: (torch.randn(batch, 3, 4),),
        lambda model, x: model(x.view(-1, 12)).square().mean(),
    )  # fmt: skip
    graph, model = export(case), build(case)
    x = torch.randn(BATCH, 4, 3)
    losses = [
        run(graph, given_values(graph, model, {"x": value}), BATCH)[graph["loss"]]
        for value in (x.transpose(1, 2), x.transpose(1, 2).contiguous())
    ]
    assert torch.equal(*losses)
