"""Every optimizer of torch.optim, and people's own: the exported step does what step() does."""

import pytest
import torch
from optimizer_cases import ALL, has_biases, maker
from rounds import thorough
from support import (
    BATCH,
    Case,
    build,
    close,
    compare_steps,
    default_dtype,
    export,
    inputs_of,
    state_of,
)
from torch import nn
from torch.nn import functional as F

from heterog import ExportError
from heterog.export.interpreter import initial_values, run_step


def regression(name: str, lr: float = 0.03, **options) -> Case:
    biases = has_biases(name)

    def model():
        return nn.Sequential(nn.Linear(6, 5, bias=biases), nn.Tanh(), nn.Linear(5, 4, bias=biases))

    return Case(
        model,
        lambda batch: (torch.randn(batch, 6), torch.randn(batch, 4)),
        lambda model, x, y: F.mse_loss(model(x), y),
        maker(name, lr),
        options,
    )


@pytest.mark.parametrize("name", ALL)
def test_ten_steps_equal_torch(name):
    """RAdam, ASGD and Switching branch on the number of the step within these."""
    graph = compare_steps(regression(name, double=True), steps=10)
    assert graph["optimizer"]["name"] == ALL[name][0].__name__


# Those whose formulas are the most unlike: what the others do in double precision is seen above.
UNLIKE = {"AdamW", "Adafactor", "ASGD", "Muon", "Lamb"}


@pytest.mark.parametrize("name", thorough(ALL, but=UNLIKE))
def test_single_precision(name):
    # Muon rounds to bfloat16 what differs in the last bit.
    compare_steps(regression(name), steps=4, tolerance=3e-2 if name == "Muon" else 3e-6)


class Shapes(nn.Module):
    """Parameters of four dimensions, of one and of none."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3)
        self.scale = nn.Parameter(torch.tensor(0.7))

    def forward(self, x):
        return self.conv(x) * self.scale


def shapes(name: str, **options) -> Case:
    def optimizer(parameters):
        one, *rest = parameters
        kind, settings = ALL[name]
        return kind([{"params": rest}, {"params": [one], "lr": 0.01}], lr=0.03, **settings)

    return Case(
        Shapes,
        lambda batch: (torch.randn(batch, 2, 5, 5),),
        lambda model, x: model(x).square().mean(),
        optimizer,
        options,
    )


@pytest.mark.parametrize("name", thorough(filter(has_biases, ALL), but=UNLIKE - {"Muon"}))
def test_parameters_of_all_shapes_in_groups_with_their_own_rates(name):
    compare_steps(shapes(name, double=True), steps=4)
    for tensor in export(shapes(name))["tensors"]:  # no number makes a float32 wider
        if tensor["dtype"] == "float64":
            assert tensor["shape"] == [] and tensor["role"] != "parameter"


def test_how_state_starts_stands_in_the_graph():
    def starts(name):
        graph = export(regression(name, lr=0.25))
        state = [t for t in graph["tensors"] if t["role"] == "optimizer_state"]
        own = [t for t in state if t["name"].startswith("0.weight/")]
        return {t["name"].removeprefix("0.weight/"): t.get("values") for t in own}

    assert starts("Adagrad") == {"sum": {"fill": 0.25}}
    # Rprop's step sizes begin as the rate of the first step, whatever it is then.
    assert starts("Rprop") == {"prev": None, "step_size": None}
    assert starts("NAdam") == {"mu_product": {"fill": 1.0}, "exp_avg": None, "exp_avg_sq": None}


def test_the_shapes_of_state():
    tensors = export(regression("Adafactor"))["tensors"]
    shapes = {t["name"]: t["shape"] for t in tensors if t["role"] == "optimizer_state"}
    assert shapes["0.weight/row_var"] == [5, 1] and shapes["0.weight/col_var"] == [1, 6]
    assert shapes["0.bias/variance"] == [5] and len(shapes) == 6


def test_a_rate_that_changes_before_the_first_step():
    """Rprop and ASGD start from the rate that holds then."""
    for name in ("Rprop", "ASGD"):
        case = regression(name, lr=0.25, double=True)
        graph = export(case)
        assert graph["optimizer"]["lr"] == 0.25
        with default_dtype(case):
            other = regression(name, lr=0.01, double=True)
            eager = build(other)
            optimizer = other.optimizer(list(eager.parameters()))
            values = initial_values(graph, state_of(build(case)))
            for number in range(1, 4):
                inputs = inputs_of(graph, case, seed=number)
                _, values = run_step(graph, values, inputs, BATCH, lr=0.01, step=number)
                optimizer.zero_grad()
                other.loss_fn(eager, *inputs.values()).backward()
                optimizer.step()
        for key, tensor in state_of(eager).items():
            close(values[key], tensor, 1e-12, f"{name}: {key}")


# ---- what cannot be said ----


def own(update, **defaults):
    """An optimizer whose step() is update(optimizer, group, p, state) for each parameter."""

    class Mine(torch.optim.Optimizer):
        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    update(self, group, p, self.state[p])

    defaults = {"lr": 0.1} | defaults
    return lambda parameters: Mine(parameters, defaults)


def reads_a_float(optimizer, group, p, state):
    p.sub_(p.grad, alpha=float(p.grad.norm()))


def reads_an_array(optimizer, group, p, state):
    p.sub_(p.grad, alpha=p.grad.numpy().sum())


def masks(optimizer, group, p, state):
    p.sub_(p.grad * p.grad[p.grad > 0].sum())


def counts_in_itself(optimizer, group, p, state):
    optimizer.calls = getattr(optimizer, "calls", 0) + 1
    p.sub_(p.grad / optimizer.calls)


def counts_beside(optimizer, group, p, state):
    optimizer.state["k"] = optimizer.state.get("k", 0) + 1


def keeps_a_list(optimizer, group, p, state):
    state.setdefault("old", []).append(p.grad.clone())


def warms_up(optimizer, group, p, state):
    group["lr"] = group["lr"] * 1.1
    p.sub_(p.grad, alpha=group["lr"])


def grows_state(optimizer, group, p, state):
    state["step"] = state.get("step", 0) + 1
    if state["step"] > 1:
        state["late"] = p.grad.clone()
    p.sub_(p.grad, alpha=0.1)


def norms_all(optimizer, group, p, state):
    norms = torch.stack([q.grad.norm() for q in group["params"]])
    p.sub_(p.grad / norms.norm(), alpha=group["lr"])


def counts_in_range(optimizer, group, p, state):
    state["step"] = state.get("step", 0) + 1
    for _ in range(state["step"]):
        p.sub_(p.grad, alpha=0.1)


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (reads_a_float, r"Mine \(test_optimizers_all.py:\d+\): .* by float\(\)"),
        (reads_an_array, r"test_optimizers_all.py:\d+\): .* by .numpy\(\)"),
        (masks, "depend on the values of tensors .*torch.where"),
        (counts_in_itself, r"changes its own 'calls'; .* kept in state\[parameter\]"),
        (counts_beside, r"it keeps state\['k'\]"),
        (keeps_a_list, "'old' of its state is a list"),
        (warms_up, "changes 'lr' of param_groups"),
        (grows_state, "make them all in the first step"),
        (norms_all, "by what it reads of others .*clip_norm"),
        (counts_in_range, r"a number that is known only when the step runs, by .*int\(\)"),
    ],
)
def test_steps_that_cannot_be_exported(update, message):
    case = regression("Adam")
    case.optimizer = own(update)
    with pytest.raises(ExportError, match=message) as caught:
        export(case)
    assert "\n" not in str(caught.value)


def test_an_optimizer_without_a_rate_is_refused():
    case = regression("Adam")
    case.optimizer = lambda params: own(reads_a_float)([{"params": params}])
    made = case.optimizer

    def without(params):
        optimizer = made(params)
        del optimizer.param_groups[0]["lr"]
        return optimizer

    case.optimizer = without
    with pytest.raises(ExportError, match=r"param_groups\[0\] has no 'lr'"):
        export(case)


def test_an_optimizer_that_has_trained_already():
    """The graph starts as a new one of its kind does."""
    case = regression("Adagrad", double=True)
    model = build(case)
    optimizer = case.optimizer(list(model.parameters()))
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    case.model, case.optimizer = model, optimizer
    state = [t for t in export(case)["tensors"] if t["role"] == "optimizer_state"]
    assert state and all(t["values"] == {"fill": 0.25} for t in state)
