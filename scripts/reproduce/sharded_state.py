"""What sharded optimizer state saves and costs under even data parallelism, simulated
(docs/results/sharded_state.md).

    scripts/reproduce.sh sharded_state [--program build/release/bin/heterog] [--only WORD …]

For each model and cluster the largest batch (a multiple of 8) that fits with the state whole on every
device and in shards; and, at the batch of the first, the step, the most memory of a device, and the
bytes that all links carry, for parameter servers, all-reduce, and shards, each alone and in buckets.
Does not fit: "-". --only takes rows of these models or clusters.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from heterog_tables import ROOT, machine

CASES = [
    ("bert_large24", "heterog-8gpu"),
    ("transformer24", "heterog-8gpu"),
    ("bert_large24", "fastt-8gpu"),
    ("transformer12", "celeritas-4gpu"),
    ("vgg19", "heterog-8gpu"),
    ("xlnet_large24", "heterog-8gpu"),
]
WAYS = [
    ("parameter servers", "ev-ps"),
    ("all-reduce", "ev-ar"),
    ("all-reduce, buckets", "horovod"),
    ("shards", "ev-ar:state=sharded"),
    ("shards, buckets", "horovod:state=sharded"),
    ("shards, rows by memory", "ev-ar:state=by-memory"),
]
STEP, FITS_NOT = 8, 3


def plan(program, model, cluster, batch, planner):
    """What `heterog plan --json` says; none if it does not fit."""
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "plan", "--graph", ROOT / "models" / f"{model}.json.gz",
                   "--cluster", ROOT / "configs" / "clusters" / f"{cluster}.json",
                   "--batch", batch, "--planner", planner, "--out", Path(folder) / "plan.json",
                   "--json"]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode == FITS_NOT:
        return None
    if done.returncode:
        sys.exit(f"sharded_state.py: {model} on {cluster}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def largest(program, model, cluster, planner):
    """0 if even the smallest batch does not fit."""
    def fits(steps):
        return plan(program, model, cluster, STEP * steps, planner) is not None

    low, high = 0, 1
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return STEP * low


def ways_table(program, model, cluster, batch):
    print(f"\n**{model} on {cluster}, batch {batch}**\n")
    print("| | step | beside all-reduce | most memory of a device | bytes on all links |")
    print("|---|---|---|---|---|")
    base = plan(program, model, cluster, batch, "ev-ar")
    for name, planner in WAYS:
        found = plan(program, model, cluster, batch, planner)
        if found is None:
            print(f"| {name} | - | | | |")
            continue
        beside = f"{100 * (found['step_seconds'] / base['step_seconds'] - 1):+.1f} %" if base else ""
        memory = max(device["peak_bytes"] for device in found["devices"]) / 1e9
        moved = sum(link["bytes"] for link in found["links"]) / 1e9
        print(f"| {name} | {1000 * found['step_seconds']:.1f} ms | {beside} | {memory:.2f} GB "
              f"| {moved:.2f} GB |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=ROOT / "build/release/bin/heterog", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    cases = [case for case in CASES if not options.only or set(case) & set(options.only)]
    print(f"{machine()}\n")
    print("| model | cluster | state whole | parameter servers | in shards | more samples | rows by memory |")
    print("|---|---|---|---|---|---|---|")
    batches = {}
    for model, cluster in cases:
        whole, served, sharded, dealt = (
            largest(options.program, model, cluster, planner)
            for planner in ("ev-ar", "ev-ps", "ev-ar:state=sharded", "ev-ar:state=by-memory"))
        batches[model, cluster] = whole or sharded
        more = f"{100 * (sharded / whole - 1):+.0f} %" if whole else "where none fit"
        print(f"| {model} | {cluster} | {whole or '-'} | {served or '-'} | {sharded or '-'} | {more} "
              f"| {dealt or '-'} |", flush=True)
    for (model, cluster), batch in batches.items():
        if batch:
            ways_table(options.program, model, cluster, batch)


if __name__ == "__main__":
    main()
