"""Peaks of memory of runs beside what was predicted (docs/running.md).

    PYTHONPATH=python .venv/bin/python scripts/measure/memory_of_runs.py [--batch 16]

Exports two small models, plans them for two processes of this machine in several ways, runs three
steps of each, and prints the megabytes at the peak of each rank as `heterog run` counts them. With
parameter servers memory follows from when gradients leave and arrive: also with a link that is
faster than the shipped one by as much as the shipped cores are faster than ours, about 40 times.
"""

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path

import heterog
import small_models

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = ROOT / "configs" / "clusters" / "local-2cpu.json"
PIPELINE = "stages=2,micro_batches=4"
CASES = [
    ("small_bert", small_models.bert,
     ["ev-ar", "accumulate:micro_batches=4", f"pipedream:{PIPELINE}", f"gpipe:{PIPELINE}",
      f"spp:{PIPELINE},recompute=all"]),
    ("small_resnet", small_models.convolution, ["ev-ar", "cp-ps"]),
]  # fmt: skip


def with_fast_link(folder: Path) -> Path:
    lines = CLUSTER.read_text().splitlines()
    machine = json.loads("\n".join(line for line in lines if not line.startswith("//")))
    machine["machines"][0]["fabric"]["bandwidth_bytes_per_second"] *= 40
    file = folder / "fast_link.json"
    file.write_text(json.dumps(machine))
    return file


def peaks(program: str, graph: Path, cluster: Path, batch: int, planner: str,
          folder: Path) -> list[dict]:
    """Of each rank, predicted and measured."""
    plan = folder / "plan.json"
    named = ["--graph", graph, "--cluster", cluster]
    for words in (
        ["plan", *named, "--batch", batch, "--planner", planner, "--out", plan],
        ["run", *named, "--plan", plan, "--steps", 3, "--json"],
    ):
        command = [program, *(str(word) for word in words)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)["memory"]


def print_row(model: str, planner: str, found: list[dict]) -> None:
    predicted = [one["predicted"]["peak_bytes"] for one in found]
    measured = [one["measured"]["peak_bytes"] for one in found]
    ratios = [m / p for m, p in zip(measured, predicted, strict=True)]
    print(f"{model:14} {planner:44}",
          *(f"{p / 1e6:7.1f}" for p in predicted), "  ",
          *(f"{m / 1e6:7.1f}" for m in measured), "  ",
          *(f"{r:5.2f}" for r in ratios), flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=16)
    options = parser.parse_args()
    program = os.environ.get("HETEROG_BIN", str(ROOT / "build/release/bin/heterog"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for model, make, planners in CASES:
            spec = make()
            graph = folder / f"{model}.json.gz"
            step = heterog.export_training_step(spec["model"], spec["make_inputs"],
                                                spec["loss_fn"], spec["optimizer"], model,
                                                check=False)  # fmt: skip
            step.save(graph)
            for planner in planners:
                print_row(model, planner,
                          peaks(program, graph, CLUSTER, options.batch, planner, folder))
                if planner.endswith("-ps"):
                    print_row(model, f"{planner}, fast link",
                              peaks(program, graph, with_fast_link(folder), options.batch, planner,
                                    folder))


if __name__ == "__main__":
    main()
