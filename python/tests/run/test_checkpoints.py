"""Checkpoints: whole or refused, with one line, without numpy."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import safetensors.torch
import torch
from runner_support import STEPS  # noqa: F401  skips where nothing is built

import heterog
from heterog.base.errors import HeterogError
from heterog.run.checkpoint import Checkpoint, load_checkpoint, save_checkpoint


def _checkpoint() -> Checkpoint:
    torch.manual_seed(3)
    weight = torch.randn(3, 4)
    state = {"step": torch.tensor(2.0), "exp_avg": torch.randn(3, 4), "exp_avg_sq": torch.rand(3, 4)}
    return Checkpoint(
        {"weight": weight, "tied": weight, "scale": torch.tensor(0.5, dtype=torch.bfloat16),
         "none": torch.zeros(0, 2), "on": torch.tensor([True, False]), "größe": torch.arange(3)},
        {"state": {0: state}, "param_groups": [{"lr": 0.1, "betas": (0.9, 0.99), "params": [0]}]},
        2,
        {"seen": torch.tensor(7)},
        {"epoch": 1, "text": '"checksum":"xxh3:0000000000000000"'},
    )  # fmt: skip


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "at.safetensors"
    save_checkpoint(path, _checkpoint())
    return path


def _state_of(path) -> str:
    (found,) = path.parent.glob("*.state")
    return found


def test_what_is_saved_comes_back(saved):
    found, expected = load_checkpoint(saved), _checkpoint()
    assert found.model.keys() == expected.model.keys()
    for name, value in expected.model.items():
        assert torch.equal(found.model[name], value) and found.model[name].dtype == value.dtype
    assert found.optimizer["param_groups"] == expected.optimizer["param_groups"]
    assert torch.equal(found.optimizer["state"][0]["exp_avg"], expected.optimizer["state"][0]["exp_avg"])
    assert (found.steps, found.extra) == (2, expected.extra)
    assert torch.equal(found.others["seen"], expected.others["seen"])
    assert safetensors.torch.load_file(saved).keys() == expected.model.keys()


def test_tensors_in_extra_come_back_where_they_stood(tmp_path):
    path = tmp_path / "at.safetensors"
    state = torch.get_rng_state()
    average = torch.randn(2, 3, dtype=torch.float64).T  # not contiguous
    extra = {"rng": state, "deep": [{"ema": average}, 3, None], "empty": torch.zeros(0), "epoch": 1}
    checkpoint = _checkpoint()
    checkpoint.extra = extra
    save_checkpoint(path, checkpoint)
    found = load_checkpoint(path)
    assert torch.equal(found.extra["rng"], state) and found.extra["epoch"] == 1
    assert torch.equal(found.extra["deep"][0]["ema"], average) and found.extra["deep"][1:] == [3, None]
    assert found.extra["empty"].shape == (0,)
    assert found.others.keys() == {"seen"} and found.optimizer["state"].keys() == {0}
    # Whoever reads version 2 alone is told, and only then.
    with safetensors.safe_open(path, "pt") as file:
        assert file.metadata()["heterog-checkpoint"] == "3"
    save_checkpoint(path, _checkpoint())
    with safetensors.safe_open(path, "pt") as file:
        assert file.metadata()["heterog-checkpoint"] == "2"
    checkpoint.extra = {"a": {"__tensor__": "extra/0"}}
    with pytest.raises(HeterogError, match="a dict has the key '__tensor__'"):
        save_checkpoint(path, checkpoint)
    assert load_checkpoint(path).extra == _checkpoint().extra


def test_every_flipped_bit_is_found(saved):
    for path in (saved, _state_of(saved)):
        whole = path.read_bytes()
        load_checkpoint(saved)
        for place in range(0, len(whole), 3):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << (place * 5 % 8)
            path.write_bytes(damaged)
            with pytest.raises(HeterogError) as caught:
                load_checkpoint(saved)
            assert path.name in str(caught.value), place
        path.write_bytes(whole)


def test_a_checkpoint_of_before_there_were_checksums_is_loaded(saved):
    second = _state_of(saved)
    for path, version in ((saved, {"heterog-checkpoint": "1"}), (second, {})):
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = {k: v for k, v in file.metadata().items() if k != "checksum"}
        tensors = safetensors.torch.load_file(path)
        safetensors.torch.save_file(tensors, path, metadata | version)
    assert load_checkpoint(saved).steps == 2


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("heterog-checkpoint", "4", "version '4'; this package reads 1 to 3"),
        ("steps", "many", "steps 'many' is no number of steps"),
        ("steps", None, "steps '' is no number of steps"),
        ("state", "../at.state", "state '../at.state' names no file beside it"),
        ("state", None, "names no file beside it"),
        ("state", "other.state", "other.state: no such file"),
        ("checksum", "xxh3:12", "checksum: 'xxh3:12' is none"),
        ("checksum", "xxh3:0123456789abcdef", "checksum: the file's bytes give xxh3:"),
    ],
)
def test_damaged_metadata_is_refused_in_one_line(saved, key, value, message):
    with safetensors.safe_open(saved, framework="pt") as file:
        metadata = dict(file.metadata())
    tensors = safetensors.torch.load_file(saved)
    # As somebody else might write it: without a checksum, of the version that had none.
    metadata = {k: v for k, v in metadata.items() if k != "checksum"} | {"heterog-checkpoint": "1"}
    metadata = {k: v for k, v in (metadata | {key: value}).items() if v is not None}
    safetensors.torch.save_file(tensors, saved, metadata)
    with pytest.raises(HeterogError, match=message.replace("?", r"\?")) as caught:
        load_checkpoint(saved)
    assert "\n" not in str(caught.value)


def test_the_version_that_has_checksums_must_have_one(saved):
    with safetensors.safe_open(saved, framework="pt") as file:
        metadata = {k: v for k, v in file.metadata().items() if k != "checksum"}
    safetensors.torch.save_file(safetensors.torch.load_file(saved), saved, metadata)
    with pytest.raises(HeterogError, match="no checksum in its metadata"):
        load_checkpoint(saved)


@pytest.mark.parametrize(
    ("tensors", "facts", "message"),
    [
        ({"optimizer/x/exp_avg": torch.ones(2)}, {}, "a tensor is called 'optimizer/x/exp_avg'"),
        ({"weights": torch.ones(2)}, {}, "a tensor is called 'weights'"),
        ({}, {"param_groups": "["}, "param_groups is missing or no JSON"),
        ({}, {"param_groups": json.dumps([3])}, "param_groups is no list of groups"),
        ({}, {"extra": ""}, "extra is missing or no JSON"),
    ],
)
def test_a_damaged_state_is_refused_in_one_line(saved, tensors, facts, message):
    with safetensors.safe_open(saved, framework="pt") as file:
        metadata = {k: v for k, v in file.metadata().items() if k != "checksum"}
    metadata["heterog-checkpoint"] = "1"
    safetensors.torch.save_file(safetensors.torch.load_file(saved), saved, metadata)
    given = {"param_groups": "[]", "extra": "{}"} | facts
    safetensors.torch.save_file(tensors, _state_of(saved), given)
    with pytest.raises(HeterogError, match=message):
        load_checkpoint(saved)


_WITHOUT_NUMPY = """
    import sys, warnings

    sys.path.append(sys.argv[2])
    warnings.simplefilter("ignore")
    import torch
    import heterog

    model = torch.nn.Linear(3, 2)
    config = {"batch": 4, "planner": "ev-ar", "cache": sys.argv[1], "threads": 1}
    with heterog.get_runner(
        model, lambda b: (torch.randn(b, 3),), lambda m, x: m(x).square().mean(),
        torch.optim.Adam(model.parameters()), "cpu:2", config,
    ) as runner:
        runner.run(2)
        runner.save(sys.argv[1] + "/at.safetensors", extra={"epoch": 1})
        assert runner.load(sys.argv[1] + "/at.safetensors") == {"epoch": 1}
        runner.run(1)
        runner.sync_to_model()
    try:
        import numpy
    except ModuleNotFoundError:
        pass
    else:
        sys.exit("numpy is there")
"""


def test_a_run_needs_no_numpy(tmp_path):
    """In an environment of everything that is installed here but numpy."""
    packages = tmp_path / "packages"
    packages.mkdir()
    for entry in Path(torch.__file__).parent.parent.iterdir():
        if not entry.name.startswith("numpy"):
            (packages / entry.name).symlink_to(entry)
    done = subprocess.run(
        [sys.executable, "-S", "-c", textwrap.dedent(_WITHOUT_NUMPY), tmp_path, packages],
        env=os.environ | {"PYTHONPATH": str(Path(heterog.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
