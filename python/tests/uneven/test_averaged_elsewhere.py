"""Losses multiplied by what a rank has of a batch, under FSDP1 and DeepSpeed: the training of one process."""

import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts" / "reproduce"))
import averaged_elsewhere as elsewhere


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(elsewhere.KINDS))
def test_weighed_losses_train_as_one_process(kind):
    if kind.startswith("zero") and importlib.util.find_spec("deepspeed") is None:
        pytest.skip("deepspeed is not installed")
    weighed, as_it_is = elsewhere.found(kind, 3)
    assert weighed <= (1e-12 if elsewhere.is_double(kind) else 1e-6)
    assert as_it_is > 1e-2
