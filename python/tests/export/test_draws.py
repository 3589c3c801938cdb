"""Operators that draw random numbers: what is exported of them, what is refused, and the numbers
that the check against PyTorch puts in their place."""

import pytest
import torch
from draw_models import MODELS
from support import Case, export
from torch import nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

import heterog
from heterog.base.errors import ExportError
from heterog.export import check, fixed_draws
from heterog.export.interpreter import operator_of
from heterog.export.operators import draws
from heterog.export.operators.dropout import without_dropout


def vectors(batch):
    return torch.randn(batch, 6), torch.randn(batch, 3)


def squares(model, x, y):
    return F.mse_loss(model(x), y)


class Does(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.inner = Inner(function)
        self.out = nn.Linear(6, 3)

    def forward(self, x):
        return self.out(self.inner(self.linear(x)))


class Inner(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def drawn(function, **options) -> list[str]:
    graph = export(Case(lambda: Does(function), vectors, squares, options=options))
    return [op["op"] for op in graph["ops"] if draws.is_random(operator_of(op["op"]))]


def checked(model, **options) -> str:
    step = heterog.export_training_step(
        model, vectors, squares, lambda p: torch.optim.SGD(p, lr=0.1), "case", check=True, **options
    )
    return step.checked


@pytest.mark.parametrize(
    ("name", "options"),
    [(name, {}) for name in MODELS]
    + [("noise", {"double": True}), ("gumbel", {"autocast": "bfloat16"})],
)
def test_models_are_those_of_pytorch_with_the_same_numbers(name, options):
    line = checked(MODELS[name], **options)
    assert line.startswith("equal to PyTorch") and "numbers in place of random ones" in line


def distribution(kind, *arguments):
    return getattr(torch.distributions, kind)(*arguments, validate_args=False)


@pytest.mark.parametrize(
    ("function", "operator"),
    [
        (lambda x: x + torch.randn(x.shape, generator=None), "aten.randn.default"),
        (lambda x: x + torch.rand_like(x, dtype=torch.bfloat16), "aten.rand_like.default"),
        (lambda x: x + torch.randint(9, x.shape, generator=None), "aten.randint.default"),
        (lambda x: x + torch.empty_like(x).random_(), "aten.randint_like.low_dtype"),
        (lambda x: x + torch.empty_like(x).random_(1, 5), "aten.randint_like.low_dtype"),
        (lambda x: x * torch.bernoulli(x.detach(), 0.3), "aten.bernoulli.p"),
        (lambda x: x * torch.empty_like(x).bernoulli_(x.detach().sigmoid()), "aten.bernoulli.Tensor"),
        (lambda x: torch.normal(0.0, x.detach().abs()) + x, "aten.normal.float_Tensor"),
        (lambda x: torch.normal(x.detach(), x.detach().abs()) + x, "aten.normal.Tensor_Tensor"),
        (lambda x: x + torch.normal(0.0, 1.0, x.shape), "aten.normal.float_float"),
        (lambda x: distribution("Normal", x, 1.0).rsample(), "aten.normal_functional.default"),
        (lambda x: distribution("Uniform", x, x + 1).rsample(), "aten.rand.default"),
        (
            lambda x: x * distribution("Categorical", x.detach().softmax(1)).sample().unsqueeze(1),
            "aten.multinomial.default",
        ),
        (
            lambda x: distribution("Exponential", x.abs() + 1).rsample(),
            "aten.exponential.default",
        ),
    ],
)
def test_what_is_exported(function, operator):
    assert drawn(function) == [operator]


@pytest.mark.parametrize(
    ("function", "part"),
    [
        (lambda x: x * torch.poisson(x.detach().exp()), "aten.poisson.default draws random numbers"),
        (
            lambda x: x * distribution("Gamma", x.exp(), x.exp()).rsample(),
            "aten._standard_gamma.default draws random numbers",
        ),
        (
            lambda x: x + torch.randn(x.shape, generator=torch.Generator()),
            "aten.randn.generator draws from a generator of its own",
        ),
    ],
)
def test_what_is_refused(function, part):
    with pytest.raises(ExportError) as error:
        drawn(function)
    assert str(error.value).startswith(f"module inner: {part}")


def test_rrelu_that_is_not_trained_draws_nothing():
    line = checked(lambda: nn.Sequential(nn.Linear(6, 3), nn.RReLU().eval()))
    assert line.startswith("equal to PyTorch")


def test_what_is_computed_again_has_the_numbers_of_the_first_time():
    def again(x):
        return checkpoint(lambda y: F.dropout(torch.tanh(y), 0.5) * 2, x, use_reentrant=False)

    def twice(x):
        return again(again(x))

    assert drawn(again) == ["aten.native_dropout.default"]
    assert drawn(twice) == ["aten.native_dropout.default"] * 2
    own = lambda x: checkpoint(  # noqa: E731
        lambda y: torch.tanh(y + torch.randn_like(y)), x, use_reentrant=False
    )
    assert drawn(own) == ["aten.randn_like.default"]


def test_noise_on_a_gradient_is_drawn_in_the_backward_pass():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 3)
            self.linear.weight.register_hook(lambda g: g + 0.1 * torch.randn_like(g))

        def forward(self, x):
            return self.linear(x + torch.randn_like(x))

    graph = export(Case(Model, vectors, squares))
    phases = [op["phase"] for op in graph["ops"] if op["op"] == "aten.randn_like.default"]
    assert phases == ["forward", "backward"]


def test_dropout_off_switches_functions_off_and_leaves_noise():
    kinds = lambda x: F.alpha_dropout(  # noqa: E731
        F.dropout2d(F.feature_alpha_dropout(x[:, :, None, None], 0.3, True), 0.3), 0.3, True
    ).flatten(1)
    assert drawn(kinds) == ["aten.bernoulli.p"] * 3
    assert drawn(kinds, dropout=False) == []
    assert drawn(lambda x: x + torch.rand_like(x), dropout=False) == ["aten.rand_like.default"]


# ---- the numbers of the check ----


def fixed(function):
    with fixed_draws.FixedDraws(keep=True):
        return function()


def test_fixed_numbers_are_exact_in_every_type_and_differ_by_element():
    for make in (torch.rand, torch.randn):
        exact = fixed(lambda: make(7, 5, dtype=torch.float64))  # noqa: B023
        assert exact.unique().numel() == 35
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            assert fixed(lambda: make(7, 5, dtype=dtype)).double().equal(exact)  # noqa: B023


def test_fixed_numbers_are_those_of_the_functional_operators():
    aten = torch.ops.aten
    operators = fixed_draws.fixed_operators(keep=True)
    x = torch.linspace(-1, 1, 40).reshape(8, 5)
    p = torch.full((8, 5), 0.3)
    pairs = [
        (lambda t: t.uniform_(-2, 3), "aten.uniform.default", (x, -2.0, 3.0)),
        (lambda t: t.normal_(1, 2), "aten.normal_functional.default", (x, 1.0, 2.0)),
        (lambda t: t.exponential_(2), "aten.exponential.default", (x, 2.0)),
        (lambda t: t.cauchy_(1, 2), "aten.cauchy.default", (x, 1.0, 2.0)),
        (lambda t: t.log_normal_(1, 2), "aten.log_normal.default", (x, 1.0, 2.0)),
        (lambda t: t.geometric_(0.3), "aten.geometric.default", (x, 0.3)),
        (lambda t: t.bernoulli_(0.3), "aten.bernoulli.p", (x, 0.3)),
        (lambda t: t.bernoulli_(p), "aten.bernoulli.Tensor", (x, p)),
        (lambda t: t.random_(2, 9), "aten.randint_like.low_dtype", (x, 2, 9)),
    ]
    for eager, name, arguments in pairs:
        assert fixed(lambda: eager(x.clone())).equal(operators[name](*arguments)), name  # noqa: B023
    noise = torch.zeros_like(x)
    left = fixed(lambda: aten.rrelu_with_noise(x, noise, 0.1, 0.3, True))
    result, slope = operators["aten.rrelu_with_noise_functional.default"](x, x, 0.1, 0.3, True)
    assert left.equal(result) and noise.equal(slope)
    assert slope.unique().numel() > 10 and (slope[x > 0] == 1).all()


def test_every_operator_that_can_be_run_has_fixed_numbers():
    x = torch.full((4, 3), 0.5)
    size = [4, 3]
    arguments = {
        "rand.default": (size,),
        "randn.default": (size,),
        "bernoulli.p": (x, 0.5),
        "bernoulli.Tensor": (x, x),
        "normal.float_float": (0.0, 1.0, size),
        "normal.float_Tensor": (0.0, x),
        "normal.Tensor_Tensor": (x, x),
        "geometric.default": (x, 0.5),
        "randint.default": (5, size),
        "randint.low": (2, 5, size),
        "randint_like.default": (x, 5),
        "randint_like.low_dtype": (x, 2, 5),
        "randperm.default": (5,),
        "multinomial.default": (x, 2),
        "native_dropout.default": (x, 0.5, True),
        "rrelu_with_noise_functional.default": (x, x, 0.1, 0.2, True),
    }
    for name, call in fixed_draws.fixed_operators(keep=True).items():
        given = arguments.get(name.removeprefix("aten."), (x,))
        first, second = (tree_leaves(call(*given)) for _ in range(2))
        assert all(a.equal(b) for a, b in zip(first, second, strict=True)), name


def test_the_check_finds_another_distribution(monkeypatch):
    """A graph that draws other numbers than PyTorch is found by its loss."""
    real = check.fixed_operators

    def shifted(keep):
        operators = real(keep)
        randn_like = operators["aten.randn_like.default"]
        return operators | {"aten.randn_like.default": lambda x: randn_like(x) + 0.5}

    monkeypatch.setattr(check, "fixed_operators", shifted)
    with pytest.raises(ExportError, match="the loss is .* off PyTorch's"):
        checked(MODELS["variational"])


def test_rates_of_layers_in_a_models_settings_are_switched_off_too():
    class Settings:
        def __init__(self):
            self.layerdrop = 0.5

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.config = Settings()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            return x if torch.rand([]) < self.config.layerdrop else self.layer(x)

    model = Encoder()
    with without_dropout(model):
        assert model.config.layerdrop == 0.0
    assert model.config.layerdrop == 0.5
