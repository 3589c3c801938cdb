"""Every step that cannot be exported ends with one line that says where and what to do."""

import os

import pytest
import torch
from support import Case, export
from torch import nn
from torch.nn import functional as F

from heterog import ExportError
from heterog.base.errors import ExporterLimit
from heterog.export.command import main

HERE = os.path.basename(__file__)


class Net(nn.Module):
    """A linear layer, then whatever the test wants to go wrong in the module `inner`."""

    def __init__(self, then):
        super().__init__()
        self.linear = nn.Linear(6, 4)
        self.inner = Inner(then)

    def forward(self, x):
        return self.inner(self.linear(x))


class Inner(nn.Module):
    def __init__(self, then):
        super().__init__()
        self.then = then

    def forward(self, x):
        return self.then(x)


def vectors(batch):
    return torch.randn(batch, 6), torch.randn(batch, 4)


def squares(model, x, y):
    return F.mse_loss(model(x), y)


def sum_of(model, x, y):
    return model(x).sum()


def refused(model, make_inputs=vectors, loss_fn=squares, **options) -> str:
    with pytest.raises(ExportError) as caught:
        export(Case(model, make_inputs, loss_fn, options=options))
    message = str(caught.value)
    assert "\n" not in message and len(message) < 400, message
    return message


def branches(x):
    return x if x.sum() > 0 else -x


def reads(x):
    return x * x.max().item()


def selects(x):
    return x[x > 0]


@pytest.mark.parametrize("then", [branches, reads, selects])
def test_control_flow_on_data(then):
    message = refused(lambda: Net(then), loss_fn=sum_of)
    assert f"{HERE}:{then.__code__.co_firstlineno + 1}" in message
    assert "in module inner (Inner)" in message
    assert "torch.where" in message


def test_a_size_that_is_half_the_batch():
    message = refused(lambda: Net(lambda x: x[: (x.shape[0] // 2) ** 2]), loss_fn=sum_of)
    assert "module inner" in message
    assert "[4, 4, 1024]" in message and "affine in the batch" in message


def test_a_size_that_is_the_square_of_the_batch():
    message = refused(lambda: Net(lambda x: x @ x.t()), loss_fn=lambda m, x, y: m(x).view(-1).sum())
    assert "[16, 25, 4096]" in message and "aten.view.default" in message


def test_an_input_whose_size_is_not_affine():
    message = refused(
        lambda: nn.Linear(6, 4), lambda b: (torch.randn(b * b, 6),), lambda m, x: m(x).sum()
    )
    assert message.startswith("input x:") and "[16, 25, 4096]" in message


def test_a_number_that_is_neither_affine_nor_reciprocal():
    message = refused(lambda: Net(lambda x: x * x.shape[0] ** 0.5))
    assert "module inner" in message and "neither a*B+c nor k/(a*B+c)" in message


def test_operators_that_depend_on_the_batch_size():
    message = refused(lambda: Net(lambda x: x.relu() if x.shape[0] > 5 else x.sigmoid()))
    assert "at batch 4" in message and "at batch 6" in message
    assert "aten.sigmoid.default" in message and "aten.relu.default" in message


def test_a_number_of_operators_that_depends_on_the_batch_size():
    def then(x):
        for _ in range(x.shape[0]):
            x = x.relu()
        return x

    message = refused(lambda: Net(then))
    assert "must not depend on the batch" in message


def test_a_number_of_results_that_depends_on_the_batch_size():
    message = refused(lambda: Net(lambda x: torch.stack(x.unbind(0))))
    assert "must not depend on the batch" in message


def test_a_type_that_depends_on_the_batch_size():
    message = refused(
        lambda: Net(lambda x: x),
        lambda b: (torch.randn(b, 6), torch.randn(b, 4).to(torch.float64 if b > 4 else None)),
    )
    assert message.startswith("forward of the model: y is torch.float32")


def test_no_parameter_gets_a_gradient():
    class Free(Net):
        def __init__(self):
            super().__init__(lambda x: x)
            self.free = nn.Parameter(torch.ones(4))

        def forward(self, x):
            with torch.no_grad():
                y = self.linear(x)
            return y + self.free.detach() + torch.zeros(4, requires_grad=True)

    assert "the loss depends on none that requires one" in refused(Free)


def test_a_model_without_parameters_to_train():
    message = refused(lambda: nn.Linear(6, 4).requires_grad_(False))
    assert "no parameter that requires a gradient" in message


def test_an_error_of_the_model_itself():
    message = refused(lambda: nn.Linear(5, 4))
    assert HERE in message and "RuntimeError" in message


@pytest.mark.parametrize(
    ("make_inputs", "message"),
    [
        (lambda b: torch.randn(b, 6), "make_inputs(4) returned Tensor; it must return a tuple"),
        (lambda b: (), "make_inputs(4) returned tuple; it must return a tuple of tensors"),
        (lambda b: (torch.randn(b, 6), 3), "make_inputs(4) returned int at place 1"),
        (lambda b: (torch.randn(b, 6),), "make_inputs returned 1 tensors, loss_fn needs 2"),
        (lambda b: (torch.randn(b, 6),) * 3, "make_inputs returned 3 tensors, loss_fn takes 2"),
        (lambda b: (torch.randn(4, 6), torch.randn(4, 4)), "their size must follow its argument"),
        (lambda b: (torch.randn(b, 6),) * (b // 2), "make_inputs returned 2 tensors at batch 4"),
        (lambda b: 1 / 0, "make_inputs(4) stopped at ZeroDivisionError"),
    ],
)
def test_inputs_that_make_no_sense(make_inputs, message):
    assert message in refused(lambda: nn.Linear(6, 4), make_inputs)


@pytest.mark.parametrize(
    ("loss_fn", "message"),
    [
        (lambda m, x, y: m(x), "tensor of shape [4, 4]; it must return a scalar"),
        (lambda m, x, y: 1.0, "loss_fn returned float; it must return a tensor"),
        (lambda m, x, y: m(x).detach().sum(), "a loss that no parameter leads to"),
    ],
)
def test_losses_that_make_no_sense(loss_fn, message):
    assert message in refused(lambda: nn.Linear(6, 4), loss_fn=loss_fn)


def test_models_that_are_none():
    with pytest.raises(ExportError, match="neither an nn.Module nor a function"):
        export(Case("net", vectors, squares))
    with pytest.raises(ExportError, match="the function returned int"):
        export(Case(lambda: 3, vectors, squares))


def test_a_model_that_reads_its_weights_while_it_is_built():
    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(1000, 1000)
            self.norm = self.linear.weight.norm().item()

    message = refused(Reads)
    assert HERE in message and "pass the built model" in message


@pytest.mark.parametrize("at", ["heterog.export.tracing.merge.Merger._call", "heterog.export.step.clean"])
def test_what_nobody_foresaw_is_one_line_too(at, tmp_path, capsys, monkeypatch):
    def broken(*_):
        raise KeyError("a bug\nof several lines")

    monkeypatch.setattr(at, broken)
    monkeypatch.setenv("HETEROG_QUIET", "1")  # a slow machine has progress to tell
    with pytest.raises(ExporterLimit) as caught:
        export(Case(lambda: nn.Linear(6, 4), vectors, squares))
    message = str(caught.value)
    assert "the exporter cannot do this (KeyError: 'a bug" in message and "\n" not in message
    if at.endswith("_call"):
        assert message.startswith("forward of the model: aten.detach.default: ")
    source = tmp_path / "mlp.py"
    source.write_text(
        "import torch\n"
        "from test_errors import squares, vectors\n"
        "def training():\n"
        "    return dict(model=torch.nn.Linear(6, 4), make_inputs=vectors, loss_fn=squares,\n"
        "                optimizer=lambda p: torch.optim.SGD(p, lr=0.1))\n"
    )
    command = [f"{source}:training", "--out", str(tmp_path / "mlp.json.gz")]
    assert main(command) == 1
    assert capsys.readouterr().err.count("\n") == 1
    monkeypatch.setenv("HETEROG_TRACEBACK", "1")
    assert main(command) == 1
    assert "Traceback" in capsys.readouterr().err
