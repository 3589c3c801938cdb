"""float16 with a dynamic loss scale: torch.amp.GradScaler's rules, inside the step."""

import pytest
import torch
from support import Case, build, export, inputs_of, state_of
from torch import nn
from torch.nn import functional as F

import heterog
from heterog.export.interpreter import initial_values, run_step
from heterog.export.operators.autocast import autocast

RULES = {"init_scale": 2.0**10, "growth_interval": 3}
BATCH, STEPS = 7, 9


def model():
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 4))


def case(optimizer, **options) -> Case:
    return Case(
        model,
        lambda batch: (torch.randn(batch, 6), torch.randn(batch, 4)),
        lambda model, x, y: F.mse_loss(model(x), y),
        optimizer,
        {"autocast": "float16", "loss_scaling": RULES} | options,
    )


OPTIMIZERS = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
}


def inputs(graph: dict, one: Case, number: int) -> dict:
    """Those of step 3 overflow float16 in the backward pass; those of step 5 already in forward."""
    given = inputs_of(graph, one, BATCH, seed=number)
    if number == 3:
        given["y"][0, 0] = 3e6
    if number == 5:
        given["x"][1, 2] = float("inf")
    return given


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("clip", [None, 0.5])
def test_as_a_grad_scaler_trains(name, clip):
    one = case(OPTIMIZERS[name], clip_norm=clip)
    graph = export(one)
    eager = build(one)
    optimizer = one.optimizer(list(eager.parameters()))
    scaler = torch.amp.GradScaler("cpu", **RULES)
    rate = optimizer.param_groups[0]["lr"]
    values = initial_values(graph, state_of(build(one)))
    scales = []
    for number in range(1, STEPS + 1):
        given = inputs(graph, one, number)
        before = dict(values)
        loss, values = run_step(graph, values, given, BATCH, lr=rate, step=number)
        optimizer.zero_grad()
        with autocast(torch.float16):
            expected = one.loss_fn(eager, *given.values())
        scaler.scale(expected).backward()
        scaler.unscale_(optimizer)
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(eager.parameters(), clip)
        scaler.step(optimizer)
        scaler.update()
        assert torch.allclose(loss, expected.detach(), rtol=1e-3, equal_nan=True)
        for key, tensor in state_of(eager).items():
            assert torch.allclose(values[key], tensor, rtol=1e-3, atol=1e-4), (number, key)
        assert values["loss_scale/scale"].item() == scaler.get_scale()
        scales.append(scaler.get_scale())
        if number in (3, 5):
            kept = [k for k in values if not k.startswith("loss_scale/")]
            assert all(torch.equal(values[k], before[k]) for k in kept)
    assert values["loss_scale/steps_left_out"].item() == 2
    assert [s / 2**10 for s in scales] == [1, 1, 0.5, 0.5, 0.25, 0.25, 0.25, 0.5, 0.5]


def test_on_two_unequal_devices_as_on_one(tmp_path):
    """The same step at other slices rounds float16 otherwise: half of 2^-10 for each of few sums."""
    torch.manual_seed(3)
    one, start = case(OPTIMIZERS["adamw"]), model()
    trained = {}
    for name, devices in {"one": "cpu:1", "two": "cpu:2"}.items():
        own = model()
        own.load_state_dict(start.state_dict())
        config = {
            "batch": 8, "autocast": "float16", "loss_scaling": RULES, "cache": str(tmp_path),
            "planner": "single" if name == "one" else "ev-ar",
        }  # fmt: skip
        runner = heterog.get_runner(
            own, one.make_inputs, one.loss_fn, one.optimizer, devices, config
        )
        with runner:
            for number in range(1, 6):
                torch.manual_seed(number)
                x, y = one.make_inputs(8)
                if number == 3:
                    y[7, 0] = 3e6
                    before = runner.state_dict()
                runner.step((x, y))
                if number == 3:
                    after = runner.state_dict()
                    assert all(torch.equal(before[key], after[key]) for key in before)
                    assert runner.loss_scale == RULES["init_scale"] / 2
            trained[name] = runner.state_dict()
    for key, tensor in trained["one"].items():
        assert torch.allclose(trained["two"][key], tensor, atol=5e-3), key


def test_bfloat16_needs_no_scale_and_float16_has_one_by_default():
    names = [
        {t["name"] for t in export(case(OPTIMIZERS["momentum"], **options))["tensors"]}
        for options in (
            {"autocast": "bfloat16", "loss_scaling": None},
            {"loss_scaling": None},
            {"loss_scaling": False},
        )
    ]
    assert ["loss_scale/scale" in found for found in names] == [False, True, False]


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"init": 3}, "loss_scaling: 'init' is not known; it has init_scale, growth_factor"),
        (3.0, "loss_scaling: float given; use a LossScaling, a dict, True or False"),
        ({"growth_interval": 0}, "growth_interval of 1 or more"),
    ],
)
def test_rules_that_make_no_sense(given, line):
    with pytest.raises(heterog.ExportError) as error:
        export(case(OPTIMIZERS["momentum"], loss_scaling=given))
    assert line in str(error.value)
