"""What the tests of heterog.discover share."""

import json
import shutil
from pathlib import Path

import pytest

from heterog.base.errors import HeterogError
from heterog.base.reading import parse_json
from heterog.discover import command
from heterog.planning.devices import installed
from program import find_program, run_program

OUTPUTS = Path(__file__).parent / "machines"
ROOT = Path(__file__).parents[2]
GRAPH = str(ROOT / "models/lenet5-tiny.json.gz")


def text(name: str) -> str:
    return (OUTPUTS / name).read_text()


def read_cluster(written: str) -> dict:
    return parse_json(written, "cluster", comments=True)


def described(tmp_path, *arguments, out="c.json") -> dict:
    path = tmp_path / out
    assert command.main([*map(str, arguments), "--out", str(path)]) == 0
    return read_cluster(path.read_text())


def refused(capsys, *arguments) -> str:
    assert command.main([*map(str, arguments), "--out", "-"]) in (2, 4)
    return capsys.readouterr().err


def plan(tmp_path, planner="ev-ar", out="c.json") -> dict:
    """With the data bases of this source beside it: the program may be another's."""
    try:
        find_program()
    except HeterogError as missing:
        pytest.skip(str(missing))
    for name in ("devices.json", "links.json"):
        if not (tmp_path / name).exists():
            shutil.copy(installed(name), tmp_path)
    path = tmp_path / "plan.json"
    run_program(["plan", "--graph", GRAPH, "--cluster", str(tmp_path / out), "--batch", "16",
                 "--planner", planner, "--out", str(path)])  # fmt: skip
    return json.loads(path.read_text())
