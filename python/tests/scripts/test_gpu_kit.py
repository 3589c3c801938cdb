"""The kit for a machine with a GPU (scripts/gpu): its steps, and all of it on CPUs.

Nothing of the machine that prepares may be needed there: the halves run with a Python that has PyTorch
and numpy, from the kit's folder and the scripts alone.
"""

import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
import torch
from program import find_program

ROOT = Path(__file__).resolve().parents[3]
GPU = ROOT / "scripts" / "gpu"
sys.path.insert(0, str(GPU))

import steps  # noqa: E402


@pytest.fixture
def kit_steps(tmp_path):
    made = []

    def make(limit=60):
        made.append(steps.Steps(tmp_path / "out", limit, dict(os.environ)))
        return made[-1]

    yield make
    for each in made:
        each.close()


def kept(tmp_path):
    with tarfile.open(tmp_path / "out" / "results.tgz") as archive:
        return {Path(name).name for name in archive.getnames()}


def test_a_step_that_fails_or_takes_too_long_ends_no_other(kit_steps, tmp_path):
    run = kit_steps()
    assert run.step("bad", 10, "echo wrong; exit 3").code == 3
    begin = time.monotonic()
    # What it started in the background must not outlive it either: the file would be made later.
    late = run.step("late", 1, f"(sleep 3; touch {tmp_path}/outlived) & sleep 30")
    assert late.code == 124 and time.monotonic() - begin < 15
    assert run.step("good", 10, ["echo", "fine"]).last_line == "fine"
    time.sleep(3)
    assert not (tmp_path / "outlived").exists()
    assert run.failed() == ["bad", "late"]
    assert (tmp_path / "out" / "steps.tsv").read_text().splitlines()[0] == "bad\t3\t0\twrong"
    assert {"bad.txt", "late.txt", "good.txt"} <= kept(tmp_path)


def test_results_are_packed_after_each_step(kit_steps, tmp_path):
    run = kit_steps()
    run.step("first", 10, f"echo 1 > {run.results}/found.json")
    assert "found.json" in kept(tmp_path)
    assert "===== first, code 0" in (tmp_path / "out" / "log.txt").read_text()


def test_steps_without_time_are_named_and_not_run(kit_steps, tmp_path):
    run = kit_steps(limit=6)
    assert run.step("none", 10, f"touch {tmp_path}/ran").code is None
    assert not (tmp_path / "ran").exists() and run.failed() == []
    assert run.many("all", 10, 2, ["true"]).said.endswith("0 of 1 passed")


def test_many_lines_pass_if_all_do(kit_steps):
    run = kit_steps()
    assert run.many("good", 20, 2, ["true"] * 3).code == 0
    found = run.many("bad", 20, 2, ["true", "echo no; exit 4"])
    assert found.code == 1 and "[4] echo no; exit 4: no" in found.said and "1 of 2 passed" in found.said


def test_a_folder_without_a_wheel_is_said_in_one_line(tmp_path):
    (tmp_path / "empty").mkdir()

    def run(site):
        words = ["right", "--fake", "--only", "nothing", "--out", tmp_path / "out", "--kit", tmp_path / "empty", "--site", site]
        return subprocess.run(
            [sys.executable, GPU / "kit.py", *map(str, words)], capture_output=True, text=True, check=False
        )

    refused = run(tmp_path / "none")
    assert refused.returncode == 2 and not (tmp_path / "out").exists()
    assert refused.stderr == f"kit.py: --kit: {tmp_path}/empty holds no wheel; run scripts/gpu/prepare.sh first\n"
    (tmp_path / "site" / "heterog").mkdir(parents=True)
    gone_on = run(tmp_path / "site")
    assert f"holds no wheel: goes on with what {tmp_path}/site holds" in gone_on.stdout
    names = [line.split("\t")[0] for line in (tmp_path / "out" / "steps.tsv").read_text().splitlines()]
    assert "machine" in names and "install" not in names


def test_losses_that_differ_are_found(tmp_path):
    sys.path.insert(0, str(GPU))
    import table

    line = "step {}: loss {:.6f}, 1.0 ms\n"
    for name, scale in (("cpu_ev-ar", 1.0), ("mixed_ev-ar", 1.001)):
        (tmp_path / f"run_{name}.txt").write_text("".join(line.format(i, scale * (2 - i / 10)) for i in range(5)))
    assert table.losses(tmp_path) == 0
    (tmp_path / "run_shared_ev-ar.txt").write_text(line.format(0, 2.1))
    assert table.losses(tmp_path) == 1
    (tmp_path / "run_shared_ev-ar.txt").write_text("died\n")
    assert table.losses(tmp_path) == 1


@pytest.mark.slow
def test_all_of_it_on_cpus(tmp_path):
    kit = tmp_path / "kit"
    build = Path(find_program()).resolve().parent.parent
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("HETEROG_", "PYTHONPATH"))}
    subprocess.run([GPU / "prepare.sh", "--fake"], check=True, stdout=subprocess.DEVNULL,
                   env=environment | {"KIT": str(kit), "HETEROG_BUILD": str(build)})  # fmt: skip
    # One half has torch in Python's own folder, the other finds it on PYTHONPATH alone.
    packages = Path(torch.__file__).parents[1]
    bare = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(packages)}
    own = {"OMP_NUM_THREADS": "1"}
    pythons = {"right": (sys._base_executable, bare), "fast": (sys.executable, own), "parts": (sys.executable, own)}
    for half, (python, variables) in pythons.items():
        out = tmp_path / half
        done = subprocess.run(
            [python, GPU / "kit.py", half, "--fake", "--kit", kit, "--out", out, "--site", tmp_path / "site"],
            capture_output=True, text=True, cwd=tmp_path, env=environment | variables,
        )  # fmt: skip
        log = (out / "log.txt").read_text() if (out / "log.txt").exists() else ""
        assert done.returncode == 0, done.stdout + done.stderr + log[-4000:]
        assert "\tno time was left" not in done.stdout
