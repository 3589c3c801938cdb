"""What the tests of heterog.get_runner share: how close is close enough."""

import json
import os
from pathlib import Path

import pytest
import torch
from program import find_program

from heterog.base.errors import HeterogError
from heterog.base.native import find_library

if not {"HETEROG_LIBRARY", "HETEROG_BIN"} <= os.environ.keys():
    try:
        find_library(), find_program()
    except HeterogError as missing:
        pytest.skip(str(missing), allow_module_level=True)

STEPS = 4

# Plans of equal shares, cut anew into 1, 7 and 4 samples.
UNEVEN = {"1:7:4-ar": "ev-ar", "1:7:4-ps": "ev-ps"}


def with_shares(path: str) -> str:
    plan = json.loads(Path(path).read_text())
    for decision in plan["decisions"]:
        decision["weights"] = [1.0, 7.0, 4.0]
    uneven = Path(path).with_suffix(".uneven.json")
    uneven.write_text(json.dumps(plan))
    return str(uneven)


def error_of(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Relative to the norm."""
    assert found.shape == expected.shape
    difference = (found.double() - expected.double()).norm().item()
    return difference / max(expected.double().norm().item(), 1e-3)


def check_state(found: dict, expected: dict, tolerance: float) -> None:
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert error_of(found[key], value) <= tolerance, key


def check_optimizer(found: dict, expected: dict, tolerance: float) -> None:
    assert found["param_groups"] == expected["param_groups"]
    assert found["state"].keys() == expected["state"].keys()
    for number, entry in expected["state"].items():
        for key, value in entry.items():
            own = found["state"][number][key]
            assert isinstance(own, type(value)), (number, key)
            if isinstance(value, torch.Tensor):
                assert error_of(own, value) <= tolerance, (number, key)
            else:
                assert own == pytest.approx(value, rel=tolerance), (number, key)
