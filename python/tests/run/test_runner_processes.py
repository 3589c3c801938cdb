"""Runners of which each process holds one rank."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from optimizer_cases import maker
from ranks_of_tests import run_script
from rounds import thorough
from runner_cases import CASES, batches
from runner_support import STEPS, check_optimizer, check_state

import heterog


SCRIPT = Path(__file__).parents[1] / "runner_ranks.py"


def processes(planner, cache, folder, data, *optimizer):
    return run_script(SCRIPT, 2, folder, planner, cache, str(folder), data, "tcp", *optimizer)


def torchrun(*arguments) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         str(SCRIPT), *arguments],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(SCRIPT.parents[1])},
        capture_output=True,
        text=True,
        timeout=900,  # of what never ends
        check=False,
    )  # fmt: skip


def check_trained(runner, expected, tmp_path):
    for rank in range(2):
        found = torch.load(tmp_path / f"rank{rank}.pt", weights_only=False)
        assert found["losses"] == pytest.approx(expected, rel=1e-10)
        check_state(found["state"], runner.state_dict(), 1e-10)
        check_optimizer(found["optimizer"], runner.optimizer_state_dict(), 1e-10)


@pytest.mark.parametrize(
    "planner, transport", [("ev-ps", "tcp"), ("ev-ps", "gloo"), ("ev-ar", "gloo")]
)
def test_processes_of_torchrun_train_as_threads_do(make, cache, tmp_path, planner, transport):
    runner = make("mlp", planner, devices="cpu:2")
    expected = [runner.step(batch) for batch in batches(CASES["mlp"], STEPS)]
    done = torchrun(planner, cache, str(tmp_path), "same", transport)
    assert done.returncode == 0, done.stderr
    check_trained(runner, expected, tmp_path)
    assert heterog.load_checkpoint(tmp_path / "at.safetensors").steps == STEPS


def test_processes_launch_steps_ahead_of_each_other(make, cache, tmp_path):
    """On GPUs: a step is launched before the loss of the last is read, in all processes or in none."""
    runner = make("mlp", "ev-ar", devices="cpu:2")
    expected = [runner.step(batch) for batch in batches(CASES["mlp"], STEPS)]
    done = processes("ev-ar", cache, tmp_path, "ahead")
    assert done.code == 0, done.said
    for rank in range(2):
        found = torch.load(tmp_path / f"rank{rank}.pt", weights_only=False)
        assert found["losses"] == pytest.approx(expected, rel=1e-10)
        check_state(found["state"], runner.state_dict(), 1e-10)


def test_processes_train_as_threads_do(make, cache, tmp_path):
    runner = make("mlp", "ev-ar", devices="cpu:2")
    expected = [runner.step(batch) for batch in batches(CASES["mlp"], STEPS)]
    done = processes("ev-ar", cache, tmp_path, "same")
    assert done.code == 0, done.said
    check_trained(runner, expected, tmp_path)


@pytest.mark.parametrize("planner", ["ev-ps", "ev-ar"])
def test_batches_of_other_sizes_in_processes(make, cache, tmp_path, planner):
    runner = make("mlp", planner, devices="cpu:2")
    given = batches(CASES["mlp"], STEPS)
    sizes = (None, 7, 2, None)
    expected = [runner.step([x[:n] for x in one]) for one, n in zip(given, sizes, strict=True)]
    done = processes(planner, cache, tmp_path, "sizes")
    assert done.code == 0, done.said
    check_trained(runner, expected, tmp_path)


def test_processes_with_other_numbers_of_samples_are_refused(cache, tmp_path):
    done = processes("ev-ar", cache, tmp_path, "sizes apart")
    assert done.code != 0
    assert "step 2: rank 1 was given 6 samples, and rank 0 7" in done.said


@pytest.mark.parametrize("cache, exports", [("kept", 1), ("none", 4)])
def test_processes_of_one_host_export_once(tmp_path, cache, exports):
    """Two processes make two runners each."""
    folder = "none" if cache == "none" else str(tmp_path / cache)
    done = processes("ev-ar", folder, tmp_path, "same")
    assert done.code == 0, done.said
    assert len((tmp_path / "exports").read_text().split()) == exports
    ranks = [torch.load(tmp_path / f"rank{rank}.pt", weights_only=False) for rank in range(2)]
    assert ranks[0]["losses"] == ranks[1]["losses"]


@pytest.mark.parametrize("name", ["Adafactor", "Switching"])
def test_optimizers_in_processes(make, cache, tmp_path, monkeypatch, name):
    monkeypatch.setattr(CASES["mlp"], "optimizer", maker(name))
    runner = make("mlp", "ev-ar", devices="cpu:2")
    expected = [runner.step(batch) for batch in batches(CASES["mlp"], STEPS)]
    done = processes("ev-ar", cache, tmp_path, "same", name)
    assert done.code == 0, done.said
    check_trained(runner, expected, tmp_path)


def test_a_look_of_one_process_is_refused_until_all_have_asked(cache, tmp_path):
    done = processes("ev-ar", cache, tmp_path, "look")
    assert done.code == 0, done.said
    newest = torch.load(tmp_path / "rank0.pt", weights_only=False)["state"]
    for rank in range(2):
        said = (tmp_path / f"look{rank}").read_text()
        assert "call sync_to_model() in each process before" in said and "\n" not in said
        looked = torch.load(tmp_path / f"looked{rank}.pt", weights_only=False)
        assert torch.equal(looked, next(iter(newest.values())).to(looked.dtype))


def test_a_transport_that_is_not_there_is_refused(make):
    with pytest.raises(heterog.HeterogError, match="transport: \"nccl\" given; .* has tcp, gloo"):
        make("mlp", "ev-ar", devices="cpu:2", transport="nccl")


def test_processes_with_data_of_their_own_are_refused(cache, tmp_path):
    done = processes("ev-ar", cache, tmp_path, "apart")
    assert done.code != 0
    assert "rank 1 was given another batch than rank 0" in done.said


@pytest.mark.parametrize("transport", thorough(["tcp", "gloo"], but={"tcp"}))
@pytest.mark.parametrize("end", ["raises", "loader raises", "is killed"])
def test_a_process_that_fails_ends_the_others(cache, tmp_path, end, transport):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = []
    for rank in range(2):
        variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_PORT": port}
        variables |= {"MASTER_ADDR": "127.0.0.1", "PYTHONPATH": SCRIPT.parents[1]}
        ranks.append(
            subprocess.Popen(
                [sys.executable, str(SCRIPT), "ev-ar", cache, str(tmp_path), end, transport],
                env=os.environ | {name: str(value) for name, value in variables.items()},
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    # A rank that is not told would wait for the other ten minutes (runner_ranks.py).
    errors = [rank.communicate(timeout=300)[1] for rank in ranks]
    last = errors[0].splitlines()[-1]
    assert "RunFailed" in last and "rank 1 (local/gpu1)" in last
    assert ranks[0].returncode == 1
    assert "ValueError: of its own making" in errors[1] or end == "is killed"
