"""Compares a profile that a GPU made with what the cost model says of the same operators.

    scripts/gpu/predicted.py GRAPH PROFILE [--only OP]     seconds of a step, by operator and batch

GRAPH: of out/gpu (scripts/gpu/prepare.sh). PROFILE: of `heterog profile`, as in bench/gpu. For each
batch that was measured, a step on the profile's device is simulated with the cost model's figures and
with the profile's. --only OP prints each operator of that name. Wants build/dev/bin/heterog.
"""

import argparse
import json
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def cluster_of(device: str) -> dict:
    model, _, part = device.partition(":")
    entry = {"model": model, "count": 1}
    if part:
        entry = {"model": model, "part_of_gpu": {"multiprocessors": int(part), "memory_bytes": 19_000_000_000}}
    machine = {"name": "here", "devices": [entry], "fabric": {"kind": "switch", "link": "pcie5-staged"}}
    return {"format": "heterog-cluster", "version": 1, "name": "one", "machines": [machine]}


def simulated(graph, cluster, batch, folder, *profile) -> dict[str, tuple[str, float]]:
    """Of each operator of the graph: its type, and its milliseconds in the step."""
    program, plan, trace = ROOT / "build/dev/bin/heterog", folder / "plan.json", folder / "trace.json"
    words = ["--graph", graph, "--cluster", cluster, *profile]
    subprocess.run([program, "plan", *words, "--batch", str(batch), "--planner", "single", "--out", plan],
                   check=True, stdout=subprocess.DEVNULL)  # fmt: skip
    subprocess.run([program, "simulate", *words, "--plan", plan, "--trace", trace], check=True, stdout=subprocess.DEVNULL)
    found = {}
    for event in json.loads(trace.read_text())["traceEvents"]:
        if event.get("ph") == "X":
            kind = event["args"].get("op", "updates").removeprefix("aten.").removesuffix(".default")
            found[event["name"]] = kind, event["dur"] / 1e3
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", type=Path)
    parser.add_argument("profile", type=Path)
    parser.add_argument("--only", metavar="OP")
    options = parser.parse_args()
    profile = json.loads(options.profile.read_text())
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        cluster = folder / "cluster.json"
        cluster.write_text(json.dumps(cluster_of(profile["device"])))
        for batch in profile["slices"]:
            predicted = simulated(options.graph, cluster, batch, folder)
            measured = simulated(options.graph, cluster, batch, folder, "--profile", options.profile)
            print_table(f"{profile['graph']['name']} on {profile['device']}, batch {batch}", predicted, measured, options.only)


def print_table(title, predicted, measured, only):
    sums = defaultdict(lambda: [0, 0.0, 0.0])
    for name, (kind, ms) in predicted.items():
        if only and kind != only:
            continue
        for key in (name if only else kind, "all"):
            sums[key][0] += 1
            sums[key][1] += ms
            sums[key][2] += measured[name][1]
    print(f"\n{title:52}{'tasks':>6}{'predicted ms':>14}{'measured ms':>13}{'ratio':>8}")
    for kind, (tasks, ms, real) in sorted(sums.items(), key=lambda one: -one[1][2]):
        print(f"{kind:52}{tasks:6}{ms:14.3f}{real:13.3f}{real / ms if ms else 0:8.2f}")


if __name__ == "__main__":
    main()
