"""Proportional over even replicas of the whole model on 4 GPUs: HeteroG's Fig. 3(a).

    scripts/reproduce.sh figure3a

One replica on each of 2 V100 and 2 GTX 1080 Ti, against two replicas on each V100 and one on each
GTX 1080 Ti, at the same batch: a plan of even data parallelism with its weights changed to 2 : 1.
Each takes the faster of its orders. "speed-up" is (even - proportional) / proportional. "own CP" are
the replicas that heterog's own costs would choose, round(speed / slowest speed). The paper names
neither the batch (here a third of Table 1's a V100 and 1080 Ti: 24 images, 90 sentences a card) nor
how gradients travel (here both ways); it gives 9 to 27 % over its five models.
"""

import json
import tempfile
from pathlib import Path

from heterog_tables import ROOT, machine
from order_table import ORDERS, heterog

CLUSTER = "heterog-4gpu"
CASES = [("vgg19", 96), ("resnet200", 96), ("inception_v3", 96), ("mobilenet_v2", 96),
         ("transformer6", 360)]  # fmt: skip
WEIGHTS = {"v100": 2.0, "1080ti": 1.0}  # by machine


def step_seconds(files, plan):
    """The fastest order's, and whether the plan fits in memory."""
    runs = [heterog("simulate", *files, "--plan", plan, "--order", order, "--json")
            for order in ORDERS]
    return min(run["step_seconds"] for run in runs), all(run["feasible"] for run in runs)


def proportional(plan):
    """The plan's text with two replicas on each V100 for one on each GTX 1080 Ti."""
    fields = json.loads(Path(plan).read_text())
    for decision in fields["decisions"]:
        decision["weights"] = [WEIGHTS[name.split("/")[0]] for name in decision["devices"]]
    return json.dumps(fields)


def own_weights(files, batch, folder):
    path = f"{folder}/own.json"
    heterog("plan", *files, "--batch", batch, "--planner", "cp-ar", "--out", path, "--json")
    decision = json.loads(Path(path).read_text())["decisions"][0]
    return " : ".join(f"{weight:g}" for weight in decision["weights"])


def main():
    print(f"HeteroG Fig. 3(a) on {CLUSTER}, seconds a step; planned on: {machine()}\n")
    print(f"{'model (batch)':22} {'sync':4} {'even':>8} {'2:2:1:1':>8}  speed-up   own CP")
    gains = []
    for model, batch in CASES:
        files = ["--graph", ROOT / f"models/{model}.json.gz",
                 "--cluster", ROOT / f"configs/clusters/{CLUSTER}.json"]
        with tempfile.TemporaryDirectory() as folder:
            own = own_weights(files, batch, folder)
            for sync in ["ps", "ar"]:
                even_path, cp_path = f"{folder}/ev-{sync}.json", f"{folder}/cp-{sync}.json"
                heterog("plan", *files, "--batch", batch, "--planner", f"ev-{sync}",
                        "--out", even_path, "--json")
                Path(cp_path).write_text(proportional(even_path))
                even, even_fits = step_seconds(files, even_path)
                cp, cp_fits = step_seconds(files, cp_path)
                gains.append((even - cp) / cp)
                print(f"{f'{model} ({batch})':22} {sync:4} {even:8.3f} {cp:8.3f}  {100 * gains[-1]:+6.1f} %"
                      f"   {own}" + ("" if even_fits and cp_fits else "  (does not fit in memory)"),
                      flush=True)
    print(f"\nours {100 * min(gains):+.1f} to {100 * max(gains):+.1f} %, in the paper +9 to +27 %")


if __name__ == "__main__":
    main()
