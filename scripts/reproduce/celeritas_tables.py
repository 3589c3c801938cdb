"""Celeritas' Tables 2 to 5 on our simulator, beside the paper's figures: 4 V100 of 32 GB over PCIe.

    scripts/reproduce.sh celeritas_tables [--threads 2] [--folder out/celeritas_tables]

NMT and the Transformer are exported into the folder, where rows are kept too: the same command goes on from
there. An asterisk marks a placement that does not fit, and with it its step if it did. `hrl` draws 200
placements; the paper's trained for five hours. Each planner counts in its default form.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from fastt_tables import Rows
from heterog_tables import ROOT, machine

PLANNERS = ["metis", "m-topo", "m-etf", "m-sct", "hrl", "order-place", "celeritas"]
OTHERS = ["portfolio"]
# Model, batch, the paper's: seconds a step by planner (None: out of memory), seconds of placement by m-SCT,
# Order-Place and Celeritas, nodes and ratio before and after fusion, deviation of memory and time in per cent.
MODELS = [
    ("inception_v3", 512, (None, 3.100, 10.548, 7.610, 8.565, 2.931, 2.859), (8.591, 5.439, 7.183),
     (6332, 33.1, 59, 8.1), (1.54, 7.99)),
    ("nmt4", 512, (None, None, None, None, 10.224, 9.117, 9.099), (None, 54.695, 59.418),
     (25463, 18.6, 154, 6.4), (3.93, 10.85)),
    ("transformer12", 256, (None, None, 8.613, 8.411, 42.837, 6.935, 6.536), (129.498, 92.639, 95.304),
     (36352, 112.0, 220, 11.1), (6.02, 14.16)),
    ("tensor_holography", 32, (6.591, 2.220, 6.376, 6.013, 3.683, 1.520, 1.461), (2.968, 2.711, 3.586),
     (3810, 49.1, 37, 7.4), (2.92, 11.32)),
]  # fmt: skip
CLUSTER = "celeritas-4gpu"
FACTS = ROOT / "build/release/bin/fusion_facts"


def graph_of(model: str, folder: Path) -> Path:
    shipped = ROOT / "models" / f"{model}.json.gz"
    if shipped.exists():
        return shipped
    made = folder / f"{model}.json.gz"
    if not made.exists():
        command = [sys.executable, ROOT / "scripts/export_zoo.py", model, "--out", folder]
        if subprocess.run([str(word) for word in command], stdout=sys.stderr).returncode != 0:
            sys.exit(f"{model} was not exported")
    return made


def in_words(value: float | None, digits: int = 3) -> str:
    return "OOM" if value is None else f"{value:.{digits}f}"


def steps(found: dict) -> None:
    print("Table 3, seconds a step (paper)")
    print(f"{'':24} " + " ".join(f"{name:>16}" for name in PLANNERS) + f" {'plan':>7}   Celeritas' gain (paper)")
    for model, batch, paper, *_ in MODELS:
        rows = found[model, CLUSTER, batch]
        cells = []
        for name, theirs in zip(PLANNERS, paper):
            row = rows[name]
            ours = "-" if row["step_seconds"] is None else in_words(row["step_seconds"]) + "*" * (not row["feasible"])
            cells.append(f"{ours} ({in_words(theirs)})")
        plan = in_words(rows["portfolio"]["step_seconds"])

        def gain(seconds: list[float | None]) -> str:
            """Over the best of those before Order-Place, as in the paper."""
            other = min((step for step in seconds[:5] if step is not None), default=None)
            if other is None or seconds[6] is None:
                return "-"
            return f"{100 * (1 - seconds[6] / other):+.1f} %"

        own = [rows[name]["step_seconds"] if rows[name]["feasible"] else None for name in PLANNERS]
        print(f"{f'{model} ({batch})':24} " + " ".join(f"{cell:>16}" for cell in cells) + f" {plan:>7}   "
              f"{gain(own)} ({gain(list(paper))})")  # fmt: skip
    print()


def planning(found: dict) -> None:
    print("Table 4, seconds of placement, one thread (paper)")
    names = ("m-sct", "order-place", "celeritas")
    print(f"{'':24} " + " ".join(f"{name:>18}" for name in names))
    for model, batch, _, paper, *_ in MODELS:
        rows = found[model, CLUSTER, batch]
        cells = [f"{rows[name]['plan_seconds']:.2f} ({in_words(theirs)})" for name, theirs in zip(names, paper)]
        print(f"{f'{model} ({batch})':24} " + " ".join(f"{cell:>18}" for cell in cells))
    print()


def fusion(folder: Path) -> None:
    print("Table 2, nodes and communication over computation, before and after the fusion (paper), and")
    print("Table 5, mean deviation of what 1/16, 1/8 and 1/4 of the batch say of the whole, per cent (paper)")
    print(f"{'':24} {'nodes':>15} {'after':>10} {'ratio':>15} {'after':>13} {'memory':>14} {'time':>15}")
    cluster = ROOT / "configs/clusters" / f"{CLUSTER}.json"
    for model, batch, _, _, (nodes, ratio, clusters, fused), (memory, time) in MODELS:
        command = [FACTS, graph_of(model, folder), cluster, batch]
        done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"fusion_facts ended with {done.returncode}")
        facts = json.loads(done.stdout)
        cells = (
            f"{facts['nodes']} ({nodes})", f"{facts['clusters']} ({clusters})",
            f"{facts['ratio']:.1f} ({ratio})", f"{facts['ratio_of_clusters']:.1f} ({fused})",
            f"{100 * facts['memory_deviation']:.2f} ({memory})", f"{100 * facts['time_deviation']:.2f} ({time})",
        )  # fmt: skip
        widths = (15, 10, 15, 13, 14, 15)
        print(f"{f'{model} ({batch})':24} " + " ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths)))
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=ROOT / "out/celeritas_tables")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    print(f"simulated; planned on: {machine()}\n")
    cases = [(model, CLUSTER, batch) for model, batch, *_ in MODELS]
    rows = Rows(options.folder, options.threads, graph_of)
    found = rows.of("steps", cases, [*PLANNERS, *OTHERS])
    fusion(options.folder)
    steps(found)
    planning(found)


if __name__ == "__main__":
    main()
