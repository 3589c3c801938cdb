"""Losses by frameworks: the table of docs/auto_shares.md, each cell run."""

import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts" / "reproduce"))
import weighed_losses

COUPLED = ("contrastive", "root")


@pytest.mark.slow
@pytest.mark.parametrize("framework", list(weighed_losses.NEEDS))
def test_every_loss_trains_as_in_one_process(framework, tmp_path):
    if importlib.util.find_spec(weighed_losses.NEEDS[framework]) is None:
        pytest.skip(f"{weighed_losses.NEEDS[framework]} is not installed")
    found = weighed_losses.table([framework], tmp_path)[framework]
    for loss in weighed_losses.LOSSES:
        kept = weighed_losses.cell(found[loss]) == "even"
        assert kept == (loss in COUPLED), loss
        assert kept or found[loss]["off"] <= weighed_losses.EXACT, loss
