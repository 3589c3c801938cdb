"""What flows side by side gain where a network caps each (docs/results/flows.md).

    scripts/reproduce.sh flows [--preset release]

Simulated: plans on AutoSync's clusters, whose cloud caps a flow at 10 Gb/s, with 1, 2, 4 and 16 flows
(`flows` of the cluster file's network). The second table is the gain of `plan` over Horovod with 1 flow,
with 4, and without a cap.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from heterog_tables import ROOT, machine

FLOWS = (1, 2, 4, 16)
CASES = [("vgg19", 512, "autosync-b7"), ("bert_large24", 64, "autosync-b7"), ("transformer6", 720, "autosync-b7"),
         ("vgg19", 512, "autosync-b1"), ("vgg19", 512, "autosync-b11"), ("resnet50", 512, "autosync-b7")]  # fmt: skip


def run(*words) -> str:
    words = [str(word) for word in words]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def shipped(cluster) -> dict:
    text = (ROOT / f"configs/clusters/{cluster}.json").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("//")]
    return json.loads("\n".join(lines))


def simulated(heterog, folder):
    def step(model, batch, cluster, planner, flows, capped=True):
        network = cluster["network"] | {"flows": flows}
        if not capped:
            network.pop("flow_cap_bytes_per_second")
        path = folder / "cluster.json"
        path.write_text(json.dumps(cluster | {"network": network}), encoding="utf-8")
        plan = run(heterog, "plan", "--graph", ROOT / f"models/{model}.json.gz", "--cluster", path, "--batch", batch,
                   "--planner", planner, "--out", folder / "plan.json", "--json")  # fmt: skip
        return json.loads(plan)["step_seconds"]

    print("| model | cluster | planner | " + " | ".join(f"{flows} flows" if flows > 1 else "1 flow" for flows in FLOWS)
          + " | 4 by 1 |\n" + "|---" * (4 + len(FLOWS)) + "|")  # fmt: skip
    for model, batch, name in CASES:
        for planner in ("ev-ar", "portfolio"):
            steps = [step(model, batch, shipped(name), planner, flows) for flows in FLOWS]
            print(f"| {model} {batch} | {name} | {'plan' if planner == 'portfolio' else planner} | "
                  + " | ".join(f"{1e3 * one:.0f} ms" for one in steps)
                  + f" | {steps[FLOWS.index(4)] / steps[0]:.2f} |", flush=True)  # fmt: skip
    print("\n| model | cluster | plan over Horovod, 1 flow | 4 flows | no cap |\n|---|---|---|---|---|")
    for model, batch, name in CASES:
        cells = []
        for flows, capped in ((1, True), (4, True), (1, False)):
            theirs, ours = (step(model, batch, shipped(name), planner, flows, capped)
                            for planner in ("horovod", "portfolio"))  # fmt: skip
            cells.append(f"{100 * (theirs / ours - 1):+.0f} %")
        print(f"| {model} {batch} | {name} | " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="release")
    options = parser.parse_args()
    heterog = ROOT / "build" / options.preset / "bin" / "heterog"
    print(f"{machine()}, {options.preset} preset\n")
    with tempfile.TemporaryDirectory() as folder:
        simulated(heterog, Path(folder))


if __name__ == "__main__":
    main()
