"""What other engines' limits cost: plans for each engine beside the free plan, simulated
(docs/results/engines.md).

    scripts/reproduce.sh engines [--program build/release/bin/heterog] [--only WORD …]
        [--engines ddp fsdp2 torch-pipelining megatron] [--jobs 2]

A row a model and cluster: milliseconds of a step, and how much longer than the free plan's. The free
plan is one shot of `heterog plan`, or an engine's plan where that is shorter. Searches for an engine
simulate 100 plans or a few more (`--evaluations`). --only takes rows of these models or clusters; --jobs
rows are planned at a time.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
CLUSTERS = ["workstation-3090-4090", "heterog-4gpu", "office-mixed", "heterog-8gpu"]
MODELS = [
    ("vgg19", 96),
    ("resnet50", 192),
    ("gnmt4", 128),
    ("transformer6", 360),
    ("transformer24", 60),
    ("bert_large24", 24),
    ("xlnet_large24", 24),
    ("bert_large48", 16),
]
# Heads of their columns. torchtitan's and Megatron-LM's plans are the same.
ENGINES = {
    "ddp": "ddp",
    "fsdp2": "fsdp2",
    "torch-pipelining": "torch-pipelining",
    "megatron": "torchtitan, megatron",
}
EVALUATIONS = 100
FITS_NOT, REFUSED = 3, 2


def machine():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return f"{line.split(':')[1].strip()}, {os.cpu_count()} cores"
    return f"{os.cpu_count()} cores"


def plan(program, model, cluster, batch, *options):
    """Seconds of a step; None and the exit code where there is no plan."""
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "plan", "--graph", ROOT / "models" / f"{model}.json.gz",
                   "--cluster", ROOT / "configs" / "clusters" / f"{cluster}.json",
                   "--batch", batch, "--out", Path(folder) / "plan.json", "--json", *options]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode in (FITS_NOT, REFUSED):
        return None, done.returncode
    if done.returncode:
        sys.exit(f"engines.py: {model} on {cluster}: {done.stderr.strip()}")
    return json.loads(done.stdout)["step_seconds"], 0


def cell(found, free):
    seconds, code = found
    if seconds is None:
        return "does not fit" if code == FITS_NOT else "cannot split it"
    return f"{1000 * seconds:.0f} ({100 * (seconds / free - 1):+.0f} %)"


def row(program, engines, cluster, model, batch):
    """What each engine's plan takes, and the free one, which may be one of them."""
    found = [plan(program, model, cluster, batch, "--for", engine, "--planner", "ev-ar",
                  "--evaluations", EVALUATIONS) for engine in engines]
    alone, _ = plan(program, model, cluster, batch)
    steps = [seconds for seconds in (alone, *(one for one, _ in found)) if seconds is not None]
    return found, min(steps, default=None)


def line(cluster, model, batch, found, free):
    if free is None:
        return f"| {cluster} | {model} {batch} | does not fit |" + " – |" * len(found)
    cells = " | ".join(cell(one, free) for one in found)
    return f"| {cluster} | {model} {batch} | {1000 * free:.0f} | {cells} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path,
                        default=ROOT / "build" / "release" / "bin" / "heterog")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    engines, heads = options.engines, [ENGINES[engine] for engine in options.engines]
    begin = time.monotonic()
    print(f"planned on: {machine()}\n")
    print("| cluster | model, batch | free | " + " | ".join(heads) + " |")
    print("|---" * (3 + len(heads)) + "|")
    gaps = {engine: [] for engine in [*engines, "best"]}
    cases = [(cluster, model, batch) for cluster in CLUSTERS for model, batch in MODELS
             if not options.only or model in options.only or cluster in options.only]
    with ThreadPoolExecutor(options.jobs) as jobs:
        for case, (found, free) in zip(cases, jobs.map(lambda c: row(options.program, engines, *c), cases),
                                       strict=True):
            print(line(*case, found, free), flush=True)
            for engine, (seconds, _) in zip(engines, found, strict=True):
                if seconds is not None:
                    gaps[engine].append(seconds / free - 1)
            steps = [seconds for seconds, _ in found if seconds is not None]
            if steps:
                gaps["best"].append(min(steps) / free - 1)
    rows = len(cases)
    print("\n| engine | rows with a plan | gap, median | largest |\n|---|---|---|---|")
    for engine, name in zip([*engines, "best"], [*heads, "the best of these"], strict=True):
        of = gaps[engine]
        figures = (f"{100 * statistics.median(of):.0f} % | {100 * max(of):.0f} %" if of else "– | –")
        print(f"| {name} | {len(of)} of {rows} | {figures} |")
    print(f"\nplanned in {time.monotonic() - begin:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
