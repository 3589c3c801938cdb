"""Computation and communication over the step, 8 GPUs: HeteroG's Fig. 8.

    scripts/reproduce.sh figure8

Computation is the time of the busiest device, communication that of the busiest link, in one
simulated step; without any overlap their sum is at most the step, and the more of it lies beyond the
step, the more they overlap. The paper prints the ratio of two plans a model, and does not say over
which devices it measured. The last column counts the time in which any link is busy instead.
"""

import json
import tempfile
from pathlib import Path

from heterog_tables import ROOT, TABLES, machine
from order_table import heterog

PAPER = {("vgg19", "cp-ar"): 1.31, ("vgg19", "portfolio"): 1.47,
         ("bert_large24", "cp-ps"): 1.21, ("bert_large24", "portfolio"): 1.56}  # fmt: skip
PLANNERS = ["ev-ps", "ev-ar", "cp-ps", "cp-ar", "portfolio"]


def any_link_seconds(trace):
    """Length of the union of what the links carry."""
    events = json.loads(Path(trace).read_text())["traceEvents"]
    link_process = next(e["pid"] for e in events
                        if e["name"] == "process_name" and e["args"]["name"] == "links")
    busy = sorted((e["ts"], e["ts"] + e["dur"]) for e in events
                  if e["ph"] == "X" and e["pid"] == link_process)
    total, end = 0.0, 0.0
    for begin, stop in busy:
        total += max(0.0, stop - max(begin, end))
        end = max(end, stop)
    return 1e-6 * total


def main():
    cluster, cases = TABLES[1]
    batches = {}
    for model, batch, *_ in cases:
        batches.setdefault(model, batch)
    print(f"HeteroG Fig. 8 on {cluster}; planned on: {machine()}\n")
    print(f"{'model (batch)':22} {'plan':10} {'step/s':>7} {'compute/s':>9} {'links/s':>8} "
          f"{'ratio':>6} {'paper':>6}  {'any link':>8}")
    for model in ["vgg19", "bert_large24"]:
        batch = batches[model]
        files = ["--graph", ROOT / f"models/{model}.json.gz",
                 "--cluster", ROOT / f"configs/clusters/{cluster}.json"]
        for planner in PLANNERS:
            with tempfile.TemporaryDirectory() as folder:
                step = heterog("plan", *files, "--batch", batch, "--planner", planner,
                               "--out", f"{folder}/plan.json", "--trace", f"{folder}/trace.json",
                               "--json")
                any_link = any_link_seconds(f"{folder}/trace.json")
            seconds = step["step_seconds"]
            compute, links = step["computation_seconds"], step["communication_seconds"]
            paper = PAPER.get((model, planner))
            name = "HeteroG" if planner == "portfolio" else planner
            print(f"{f'{model} ({batch})':22} {name:10} {seconds:7.3f} {compute:9.3f} {links:8.3f} "
                  f"{(compute + links) / seconds:6.2f} {paper or '':>6}  "
                  f"{(compute + any_link) / seconds:8.2f}", flush=True)


if __name__ == "__main__":
    main()
