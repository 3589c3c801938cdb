"""What a step launches on a GPU stays within a bound of what eager PyTorch launches."""

import os
import sys
from pathlib import Path

import pytest
from rounds import thorough

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts/gpu"))

import launches  # noqa: E402

PROGRAM = Path(os.environ.get("HETEROG_BIN", ROOT / "build/dev/bin/heterog")).parent / "count_launches"


@pytest.mark.parametrize(
    ("call", "bound"),
    # Few layers, as each launches alike. Attention that drops weights is 21 launches where PyTorch
    # has two.
    [
        ("bert_large(layers=4)", 1.47),
        ("gpt2(layers=3)", 1.03),
        # Running statistics are written where they are, else there were 106 copies more.
        pytest.param("resnet50()", 1.02, marks=pytest.mark.thorough),
    ],
)
def test_a_step_launches_little_more_than_eager_pytorch(call, bound, tmp_path):
    module = tmp_path / "model.py"
    folder = Path(launches.__file__).parent
    module.write_text(
        f"import sys\nsys.path.insert(0, {str(folder)!r})\nimport launches\n\ndef make():\n    return launches.{call}\n"
    )
    ours = launches.of_runtime(f"{module}:make", PROGRAM, tmp_path / "graph.json.gz")
    eager = launches.of_eager(eval(call, vars(launches)))
    assert ours["launches"] <= bound * eager.launches
    assert ours["launches"] > 0.9 * eager.launches  # both count the same things
    # The inputs of the next step go there and the loss comes back; the host waits for the end of the
    # step alone, and within it for what lies some hundred launches behind.
    assert ours["copies"] <= 8
    assert ours["syncs"] == 0
    assert ours["event_waits"] <= 2 + ours["launches"] / 10


def test_eager_launches_are_those_that_can_be_counted_by_hand():
    import torch
    from torch.nn import functional as F

    def make():
        return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())

    counted = launches.of_eager(
        {
            "model": make,
            "make_inputs": lambda batch: (torch.ones(batch, 4),),
            "loss_fn": lambda model, x: F.dropout(model(x), 0.5).sum(),
            "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
        }
    )
    # addmm, relu, dropout, sum; the gradient of 1, of dropout, relu, weight and bias; the update.
    assert counted.launches == 10
