"""Graph files: bytes, readability, the export command and its exit codes."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import heterog
from heterog.export import command
from heterog.export.graph.writer import read_graph

PYTHON = str(Path(__file__).parents[2])

SOURCE = """
import torch

def training():
    return dict(
        model=lambda: torch.nn.Linear(3, 2),
        make_inputs=lambda batch: (torch.randn(batch, 3), torch.randint(0, 2, (batch,))),
        loss_fn=lambda model, x, y: torch.nn.functional.cross_entropy(model(x), y),
        optimizer=lambda parameters: torch.optim.Adam(parameters),
        name="line",
    )

class Training:
    pass

def as_object():
    made = Training()
    made.__dict__.update(training())
    return made

def without_loss():
    made = training()
    del made["loss_fn"]
    return made

def impossible():
    return training() | {"loss_fn": lambda model, x, y: model(x)}

def breaks():
    raise KeyError("weights")
"""


def export_step():
    return heterog.export_training_step(
        lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)),
        lambda batch: (torch.randn(batch, 3), torch.randint(0, 2, (batch,))),
        lambda model, x, y: F.cross_entropy(model(x), y),
        lambda params: torch.optim.AdamW(params),
        "small",
    )


def test_the_same_step_gives_the_same_bytes(tmp_path):
    torch.manual_seed(1)
    export_step().save(tmp_path / "one.json.gz")
    torch.manual_seed(2)
    export_step().save(tmp_path / "another.json.gz")
    one = (tmp_path / "one.json.gz").read_bytes()
    assert one == (tmp_path / "another.json.gz").read_bytes()
    assert one[4:8] == bytes(4)  # no time stamp in the gzip header
    assert sorted(os.listdir(tmp_path)) == ["another.json.gz", "one.json.gz"]


def test_a_file_is_one_tensor_or_operator_a_line(tmp_path):
    step = export_step()
    step.save(tmp_path / "small.json.gz")
    assert read_graph(tmp_path / "small.json.gz") == step.graph
    lines = gzip.decompress((tmp_path / "small.json.gz").read_bytes()).decode().splitlines()
    assert lines[0] == '{"format": "heterog-graph",'
    tensors, ops = step.graph["tensors"], step.graph["ops"]
    first = lines.index(' "tensors": [') + 1
    assert lines[first + len(tensors)] == ' "ops": ['
    for entry, line in zip(tensors, lines[first:], strict=False):
        assert json.loads(line.rstrip(",").removesuffix("]")) == entry
    for entry, line in zip(ops[:-1], lines[first + len(tensors) + 1 :], strict=False):
        assert json.loads(line.rstrip(",")) == entry
    assert len(lines) == first + len(tensors) + 1 + len(ops)


def test_a_failed_write_leaves_nothing_behind(tmp_path):
    step = export_step()
    target = tmp_path / "taken"
    target.mkdir()
    (target / "file").write_text("")
    with pytest.raises(OSError):
        step.save(target)
    assert os.listdir(tmp_path) == ["taken"]


def test_ids_roles_and_links_are_consistent():
    graph = export_step().graph
    tensors, ops = graph["tensors"], graph["ops"]
    made = set()
    for index, op in enumerate(ops):
        read = set(_tensor_ids([op["args"], op.get("kwargs", {})]))
        for tensor in read:
            assert tensor in made or tensors[tensor]["role"] in (
                "input",
                "parameter",
                "buffer",
                "optimizer_state",
            )
        outputs = {t for t in op["outputs"] if t is not None}
        assert not outputs & made
        made |= outputs
        if "forward" in op:
            assert op["forward"] < index
    for tensor_id, tensor in enumerate(tensors):
        if tensor["role"] == "gradient":
            assert tensors[tensor["of"]]["role"] == "parameter"
            assert tensors[tensor["of"]]["shape"] == tensor["shape"]
        if "replaces" in tensor:
            assert tensor["role"] == "output"
            assert tensors[tensor["replaces"]]["shape"] == tensor["shape"]
        if tensor["role"] in ("activation", "gradient", "output"):
            assert tensor_id in made
    assert tensors[graph["loss"]]["role"] == "output" and tensors[graph["loss"]]["shape"] == []
    replaced = {tensor["replaces"] for tensor in tensors if "replaces" in tensor}
    for tensor_id, tensor in enumerate(tensors):
        if tensor["role"] in ("parameter", "optimizer_state", "buffer"):
            assert tensor_id in replaced


def _tensor_ids(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _tensor_ids(item)
    elif isinstance(value, str) and value.startswith("%"):
        yield int(value[1:])


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "given.py"
    path.write_text(SOURCE)
    return str(path)


def test_the_command_in_a_shell(source, tmp_path):
    out = tmp_path / "line.json.gz"
    environment = os.environ | {"PYTHONPATH": PYTHON}
    call = [sys.executable, "-m", "heterog.export", f"{source}:training", "--out", str(out)]
    done = subprocess.run(call, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "" and "line, " in done.stderr
    assert read_graph(out)["name"] == "line"


def test_the_command_with_options(source, tmp_path):
    out = tmp_path / "line.json.gz"
    options = ["--name", "twice", "--double", "--no-dropout", "--clip-norm", "1", "--batches", "3"]
    call = [f"{source}:as_object", "--out", str(out), *options, "5", "7"]
    assert command.main(call) == 0
    graph = read_graph(out)
    assert (graph["name"], graph["dtype"], graph["traced_batches"]) == ("twice", "float64", [3, 5, 7])
    assert any(op["name"].startswith("clip/") for op in graph["ops"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("given.py:impossible", "it must return a scalar"),
        ("given.py:without_loss", "without_loss() returned no loss_fn"),
        ("given.py:breaks", "breaks() stopped at KeyError"),
        ("given.py:absent", "it defines no function absent"),
        ("absent.py:training", "absent.py: no such file"),
        ("given.py", "expected FILE.py:FUNCTION"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(source, tmp_path, capsys, name, message):
    call = [os.path.join(tmp_path, name), "--out", str(tmp_path / "out.json.gz")]
    assert command.main(call) == 2
    errors = capsys.readouterr().err
    assert message in errors and errors.count("\n") == 1
    assert os.listdir(tmp_path).count("out.json.gz") == 0


def test_bad_usage_and_help(source, capsys):
    with pytest.raises(SystemExit) as stopped:
        command.main([f"{source}:training"])
    assert stopped.value.code == 2
    assert command.main([f"{source}:training", "--out", "/nowhere/at/all/x.json.gz"]) == 4
    assert "/nowhere/at/all is no directory" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        command.main(["--help"])
    assert stopped.value.code == 0
    assert "example:" in capsys.readouterr().out


def test_a_bug_is_exit_code_1(source, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "export_training_step", lambda **_: [][0])
    assert command.main([f"{source}:training", "--out", str(tmp_path / "x.json.gz")]) == 1
    assert "IndexError" in capsys.readouterr().err
