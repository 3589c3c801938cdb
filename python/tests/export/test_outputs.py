"""What a step gives beside its loss is what plain PyTorch computes, whatever the plan."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from output_cases import BATCH, batches, by_runner, loss_fn, make_inputs, make_model, make_optimizer, measure, plain
from runner_support import with_shares
from torch.nn import functional as F

import heterog
from heterog.export.graph.outputs import outputs_of
from heterog.run.evaluation import sums_over


def same(found: dict, expected: dict) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].shape == value.shape and found[name].dtype == value.dtype, name
        assert torch.allclose(found[name].double(), value.double(), rtol=1e-10, atol=1e-12), name


@pytest.mark.parametrize(
    "planner", ["ev-ar", "cp-ps", "single", "accumulate:micro_batches=3", "gpipe:stages=2,micro_batches=3"]
)
def test_outputs_are_those_of_one_device(planner):
    found, _ = by_runner([BATCH] * 3, ["V100-PCIE-16GB", "GTX-1080-Ti", "T4"],
                         {"planner": planner, "any_device": True})  # fmt: skip
    for one, expected in zip(found, plain([BATCH] * 3)[0], strict=True):
        same(one, expected)


def test_outputs_of_batches_of_other_sizes_in_unequal_shares():
    sizes = [BATCH, 7, 2, BATCH]
    model = make_model()
    devices = {"planner": "ev-ar", "batch": BATCH, "double": True, "gradient_norm": True, "cache": False}
    with heterog.get_runner(model, make_inputs, loss_fn, make_optimizer(model), "cpu:3", devices) as runner:
        plan = with_shares(runner.plan_path)
    found, _ = by_runner(sizes, "cpu:3", {"plan": plan})
    for one, expected in zip(found, plain(sizes)[0], strict=True):
        same(one, expected)


def test_the_norm_is_that_before_clipping():
    found, _ = by_runner([BATCH] * 2, "cpu:2", {"clip_norm": 0.01})
    for one, expected in zip(found, plain([BATCH] * 2, clip=0.01)[0], strict=True):
        assert expected["gradient_norm"] > 0.01
        same(one, expected)


@pytest.mark.parametrize("planner", ["ev-ar", "ev-ps"])
def test_processes_get_the_same_outputs_and_share_evaluation(planner, tmp_path):
    script = Path(__file__).parents[1] / "output_cases.py"
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script),
         planner, str(tmp_path)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(script.parents[1])},
        capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    expected, model = plain([BATCH, 7])
    sums = sums_over(model, "cpu", measure, batches([5, 3, 4]), (0, 1))
    alone = sums_over(plain([BATCH])[1], "cpu", measure, batches([6]), (0, 1))
    assert sums["samples"] == 12 and alone["samples"] == 6
    for rank in range(2):
        found, theirs, one = torch.load(tmp_path / f"rank{rank}.pt")
        for got, wanted in zip(found, expected, strict=True):
            same(got, wanted)
        assert theirs == pytest.approx(sums, rel=1e-10)
        assert one == pytest.approx(alone, rel=1e-10)


def test_each_takes_every_so_many_th_batch_to_evaluate():
    model = make_model()
    whole = sums_over(model, "cpu", measure, batches([5, 3, 4, 2]), (0, 1))
    parts = [sums_over(model, "cpu", measure, batches([5, 3, 4, 2]), (own, 3)) for own in range(3)]
    assert [part["samples"] for part in parts] == [7, 3, 4]
    assert sum(part["loss"] for part in parts) == pytest.approx(whole["loss"])
    assert model.training


@pytest.mark.parametrize(
    "measured, message",
    [(lambda m, b: 3.0, "float measured"), (lambda m, b: {}, "at least one"),
     (lambda m, b: {f"of {len(b[1])}": 1}, "expected the same names")],
)  # fmt: skip
def test_what_cannot_be_added_up_is_refused(measured, message):
    with pytest.raises(heterog.HeterogError, match=message):
        sums_over(make_model(), "cpu", measured, batches([5, 3]), (0, 1))
    with pytest.raises(heterog.HeterogError, match="no batches"):
        sums_over(make_model(), "cpu", measure, [], (0, 1))


def export(loss_fn, **settings):
    model = make_model()
    return heterog.export_training_step(model, make_inputs_double, loss_fn, make_optimizer(model), "outputs", **settings)


def make_inputs_double(batch):
    x, label = make_inputs(batch)
    return x.double(), label


@pytest.mark.parametrize(
    "returned, message",
    [
        (lambda loss: (loss, {"a b": loss}), "'a b' has no name"),
        (lambda loss: (loss, {"gradient_norm": loss}), "may not be called 'gradient_norm'"),
        (lambda loss: (loss, {"a": 1.0}), "the output 'a' is a float"),
        (lambda loss: (loss, loss), "a tuple of 2"),
        (lambda loss: (loss, {}, {}), "a tuple of 3"),
    ],
)
def test_outputs_that_are_none_are_refused(returned, message):
    with pytest.raises(heterog.ExportError, match=message):
        export(lambda model, x, label: returned(F.cross_entropy(model(x), label)))


def test_outputs_are_compared_with_pytorch(monkeypatch):
    import heterog.export.check as check

    step = export(loss_fn, gradient_norm=True, check=True)
    assert "in float64" in step.checked
    assert set(outputs_of(step.graph)) == set(plain([BATCH])[0][0])
    monkeypatch.setattr(check, "outputs_of", lambda graph: {"accuracy": outputs_of(graph)["largest"]})
    with pytest.raises(heterog.ExportError, match="the output accuracy is .* off PyTorch's"):
        export(loss_fn, check=True)


def test_names_of_outputs_must_not_depend_on_the_batch():
    with pytest.raises(heterog.ExportError, match="other outputs than at batch"):
        export(lambda model, x, label: (F.cross_entropy(model(x), label), {f"of_{len(x)}": x}))


def test_lines_and_curves():
    model = make_model()
    lines, curves = [], []

    class Writer:
        def add_scalar(self, name, value, step):
            curves.append((name, value, step))

    config = {"batch": BATCH, "double": True, "gradient_norm": True, "cache": False}
    with heterog.get_runner(model, make_inputs, loss_fn, make_optimizer(model), "cpu:2", config) as runner:
        with pytest.raises(heterog.HeterogError, match="no step has been done"):
            runner.outputs()
        calls = [heterog.StepLines(runner, every=2, say=lines.append), heterog.StepCurves(runner, Writer(), every=3)]
        losses = runner.run(6, on_step=[*calls, lambda number, loss: number == 4])
        assert len(losses) == 4
        for bad in (0, True, 1.5):
            with pytest.raises(heterog.HeterogError, match="every"):
                heterog.StepLines(runner, every=bad)
        with pytest.raises(heterog.HeterogError, match="has no add_scalar"):
            heterog.StepCurves(runner, logging.getLogger())
        accuracy = runner.outputs()["accuracy"].item()
    assert [line.split(":")[0] for line in lines] == ["step 2", "step 4"]
    assert f"loss {losses[3]:.4g}, " in lines[1] and f", accuracy {accuracy:.4g}" in lines[1]
    names = ["loss", "seconds", "learning_rate", "accuracy", "right", "largest", "same", "gradient_norm"]
    assert {name for name, _, _ in curves} == {f"train/{name}" for name in names}
    assert {step for _, _, step in curves} == {3}
    assert ("train/loss", losses[2], 3) in curves and ("train/learning_rate", 0.5, 3) in curves


def test_outputs_of_several_lengths():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(20, 6), torch.nn.Linear(6, 20)).double()

    def of_length(length):
        return lambda batch: tuple(torch.randint(0, 20, (batch, length)) for _ in range(2))

    def loss_and_logits(model, x, label):
        logits = model(x)
        return F.cross_entropy(logits.flatten(0, 1), label.flatten()), {"logits": logits}

    config = {"batch": 4, "double": True, "planner": "ev-ar", "cache": False}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    lengths = [of_length(6), of_length(4)]
    with heterog.get_runner(model, lengths, loss_and_logits, optimizer, "cpu:2", config) as runner:
        for length, samples in ((6, 4), (4, 4), (4, 3), (6, 4)):
            x, label = of_length(length)(samples)
            runner.step((x, label))
            same(runner.outputs(), {"logits": model(x).detach()})
