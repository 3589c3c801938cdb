"""Seconds of one small plan by the program and by a function of Python (docs/planning_from_python.md).

    PYTHONPATH=python .venv/bin/python scripts/reproduce/planning_calls.py
"""

import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import heterog
from heterog_command import program_environment

ROOT = Path(__file__).resolve().parent.parent.parent
GRAPH, CLUSTER = ROOT / "models/vgg19.json.gz", ROOT / "configs/clusters/heterog-8gpu.json"
CALLS = 5


def median_seconds(call) -> float:
    call()  # what is read from the disk for the first time
    seconds = []
    for _ in range(CALLS):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        program = [
            ROOT / "build/release/bin/heterog", "plan", "--graph", GRAPH, "--cluster", CLUSTER,
            "--batch", "192", "--planner", "ev-ar", "--out", f"{folder}/plan.json", "--json",
        ]  # fmt: skip
        environment = program_environment(Path(program[0]).parent)
        run = median_seconds(
            lambda: subprocess.run(program, env=environment, check=True, capture_output=True)
        )
    here = median_seconds(lambda: heterog.plan(GRAPH, CLUSTER, 192, planner="ev-ar"))
    print(f"ev-ar for VGG-19 on 8 GPUs, median of {CALLS}: program {run:.2f} s, function {here:.2f} s")


if __name__ == "__main__":
    main()
