"""The planner without LibTorch: what it links, what it answers, what it refuses."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from program import find_program, run_program

import heterog_command

ROOT = Path(__file__).parents[3]
PLAN = ["plan", "--graph", "models/resnet50.json.gz", "--cluster", "configs/clusters/heterog-4gpu.json", "--batch",
        "64", "--planner", "local-search", "--evaluations", "60", "--seed", "3"]  # fmt: skip


def planner() -> Path:
    return Path(find_program()).resolve().with_name("heterog-planner")


def library() -> Path:
    return planner().parents[1] / "lib/libheterog_planner.so"


def run_planner(*words: str) -> subprocess.CompletedProcess:
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    return subprocess.run([planner(), *words], cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("file", [planner, library])
def test_links_nothing_of_torch(file):
    needed = subprocess.run(["readelf", "-d", file()], check=True, capture_output=True, text=True).stdout
    names = re.findall(r"NEEDED.*\[(.+?)\]", needed)
    assert any(name.startswith("libstdc++") for name in names)
    assert not [name for name in names if re.match("lib(torch|c10|cuda|nccl)", name)]


def test_plans_as_the_whole_program_does(monkeypatch, tmp_path):
    own, whole = tmp_path / "own.json", tmp_path / "whole.json"
    ended = run_planner(*PLAN, "--out", str(own), "--json")
    assert ended.returncode == 0, ended.stderr
    monkeypatch.chdir(ROOT)
    found = run_program([*PLAN, "--out", str(whole)])
    assert json.loads(ended.stdout)["step_seconds"] == found["step_seconds"]
    assert own.read_bytes() == whole.read_bytes()
    told = run_planner("explain", *PLAN[1:5], "--plan", str(own))
    assert told.returncode == 0 and "busiest" in told.stdout, told.stderr


def test_refuses_what_trains_or_learns(tmp_path):
    source = (ROOT / "src/cli/torch/without_torch.cc").read_text(encoding="utf-8")
    assert tuple(re.findall(r'add_refused\(app, chosen, "(\w+)"\)', source)) == heterog_command._WITH_TORCH
    learned = [*PLAN[:7], "--planner", "policy:checkpoint=x", "--out", str(tmp_path / "x")]
    for words in (*[[verb, "--graph", "x", "more"] for verb in heterog_command._WITH_TORCH], learned):
        ended = run_planner(*words)
        assert ended.returncode == 2 and ended.stdout == ""
        assert ended.stderr.count("\n") == 1 and "the planner alone, without LibTorch" in ended.stderr
    assert not (tmp_path / "x").exists()


def test_python_plans_beside_a_torch_without_a_library(tmp_path):
    script = f"""
import torch
torch.__version__ = "2.99.0"
import heterog
from heterog.base import native
native.find_planner = lambda: {str(library())!r}
found = heterog.plan("models/lenet5.json.gz", "configs/clusters/local-2cpu.json", 16, evaluations=20)
assert found.step_seconds > 0 and not hasattr(native.load_library(planner_will_do=True), "heterog_open")
for refused in (native.load_library, lambda: heterog.verify("models/lenet5.json.gz", "configs/clusters/local-2cpu.json", planner="ev-ar", batch=16)):
    try:
        refused()
    except heterog.HeterogError as error:
        print(error)
"""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "python")}
    environment.pop("HETEROG_LIBRARY", None)
    ended = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("torch 2.99.0 is installed") == 2, ended.stdout
