"""How far plans are above the step that no plan can be under, and what the bound leaves out.

    scripts/reproduce.sh bound_of_all_plans [MODEL ...]

HeteroG's 28 cases on 8 and 12 GPUs. Of each the bound of all plans (docs/explain.md), milliseconds, and
how much of a step it is: of the one-shot plan, and of one where links cost next to nothing and devices
have all the memory that they want. The bound counts neither, and is the same for both: so the second
figure shows how loose it is of itself, and the first what bytes and memory add. Exit code 1: a plan is
under the bound.
"""

import json
import sys
import tempfile
from pathlib import Path
from statistics import median

from heterog_tables import ROOT, TABLES, machine
from network_speed import without_comments
from order_table import heterog

NOTHING = {"bandwidth_bytes_per_second": 1e13, "latency_seconds": 1e-9, "launch_seconds": 1e-9}
CLOSE = 0.85  # of a step: within 15 %


def free_cluster(name, folder):
    """The cluster with links and memory that no plan has to heed."""
    cluster = json.loads(without_comments(ROOT / f"configs/clusters/{name}.json"))
    cluster["network"] = {"latency_seconds": 0}
    for one in cluster["machines"]:
        one["fabric"] = {"kind": "switch"} | NOTHING
        one["nic"] = NOTHING
        for device in one["devices"]:
            device["memory_bytes"] = 1 << 40
    path = Path(folder) / "free.json"
    path.write_text(json.dumps(cluster))
    return path


def main():
    models = sys.argv[1:]
    print(f"planned on: {machine()}\n")
    print(f"{'':38}{'':>9}{'bound over the step of':>26}")
    print(f"{'model (batch)':24}{'cluster':14}{'bound':>9}{'the plan':>11}{'free of both':>15}")
    shares = []
    with tempfile.TemporaryDirectory() as folder:
        for cluster, cases in TABLES.values():
            paths = [ROOT / f"configs/clusters/{cluster}.json", free_cluster(cluster, folder)]
            for model, batch, *_ in cases:
                if models and model not in models:
                    continue
                said = [heterog("plan", "--graph", ROOT / f"models/{model}.json.gz", "--cluster", path,
                                "--batch", batch, "--out", f"{folder}/plan.json", "--json", "--log-level", "error")
                        for path in paths]  # fmt: skip
                found = [one["any_plan_bound_seconds"] / one["step_seconds"] for one in said]
                shares.append(found)
                bound = 1e3 * said[0]["any_plan_bound_seconds"]
                print(f"{f'{model} ({batch})':24}{cluster:14}{bound:9.1f}{found[0]:11.2f}{found[1]:15.2f}",
                      flush=True)
    columns = list(zip(*shares, strict=True))
    print(f"\n{'median':47}" + f"{median(columns[0]):11.2f}{median(columns[1]):15.2f}")
    close = [sum(share >= CLOSE for share in column) for column in columns]
    print(f"{f'within 15 %, of {len(shares)} cases':47}" + f"{close[0]:11}{close[1]:15}")
    return int(max(map(max, shares)) > 1)


if __name__ == "__main__":
    sys.exit(main())
