"""Who pays for a push: steps with and without what transfers take of the GPUs at their ends.

    scripts/reproduce.sh pushes [MODEL ...]

Clusters whose pushes, pulls and activations go between machines by NCCL, which takes multiprocessors
(docs/costs.md, "Beside communication"), and HeteroG's, whose pushes go by gRPC, which takes none. Of
each model: even data parallelism by parameter servers and by all-reduce, and the plan, with
`transfer_multiprocessors` as links.json has it and with 0; and how much longer.
"""

import json
import sys
import tempfile
from pathlib import Path

from heterog_tables import ROOT, machine
from network_speed import without_comments
from order_table import heterog

CLUSTERS = ["autosync-b7", "office-mixed", "dgx-h100-mixed", "heterog-8gpu"]
BATCHES = {"resnet50": 192, "vgg19": 192, "mobilenet_v2": 192, "transformer6": 720, "bert_large24": 48}
PLANNERS = {"EV-PS": "ev-ps", "EV-AR": "ev-ar", "plan": "portfolio"}


def free_of_charge(name, folder):
    cluster = json.loads(without_comments(ROOT / f"configs/clusters/{name}.json"))
    for one in cluster["machines"]:
        one["nic"]["transfer_multiprocessors"] = 0
    path = Path(folder) / "cluster.json"
    path.write_text(json.dumps(cluster))
    return path


def cell(without, charged):
    if charged is None or without is None:
        return f"{'OOM':>15}{'':7}"
    return f"{1e3 * without:7.1f}{1e3 * charged:8.1f}{100 * (charged / without - 1):+5.1f} %"


def main():
    print(f"planned on: {machine()}; milliseconds of a step without the charge, with it, difference\n")
    print(f"{'cluster':16}{'model (batch)':22}" + "".join(f"{name:>22}" for name in PLANNERS) + "   faster of EV")
    for name in CLUSTERS:
        with tempfile.TemporaryDirectory() as folder:
            for model in sys.argv[1:] or BATCHES:
                steps = {}
                for where, cluster in ("free", free_of_charge(name, folder)), ("charged", name):
                    said = heterog("compare", "--graph", ROOT / f"models/{model}.json.gz", "--cluster", cluster,
                                   "--batch", BATCHES[model], "--planner", "portfolio", "--json")
                    rows = {row["name"]: row for row in said["planners"]}
                    for label, planner in PLANNERS.items():
                        row = rows[planner]
                        steps[where, label] = row["step_seconds"] if row["feasible"] else None
                faster = [min(("EV-PS", "EV-AR"), key=lambda label: steps[where, label] or 1e9)
                          for where in ("free", "charged")]
                print(f"{name:16}{f'{model} ({BATCHES[model]})':22}"
                      + "".join(cell(steps["free", label], steps["charged", label]) for label in PLANNERS)
                      + "   " + (faster[0] if faster[0] == faster[1] else " -> ".join(faster)), flush=True)


if __name__ == "__main__":
    main()
