"""Rank order against FIFO: HeteroG's Table 7 beside our simulator's.

    scripts/reproduce.sh table7 [--authors]

--authors takes the links at what the authors' code says of them. The paper compares the two orders under HeteroG's own plan; here they are compared under even data
parallelism, with all-reduce and with parameter servers, and under the plan that heterog finds.
"speed-up" is (FIFO - rank) / rank. A table of data parallelism with an order drawn at random
follows: that is what the paper's figures are to be compared with (docs/results/orders.md).
"""

import argparse
import json
import subprocess
import sys
import tempfile

from heterog_tables import PROGRAM, ROOT, TABLES, machine

PAPER = {  # model: seconds with HeteroG's order, with FIFO
    "vgg19": (0.462, 0.512), "resnet200": (0.693, 0.761), "inception_v3": (0.528, 0.602),
    "mobilenet_v2": (0.232, 0.269), "nasnet_a_large": (0.862, 0.989), "transformer6": (0.298, 0.322),
    "bert_large24": (0.451, 0.514), "xlnet_large24": (0.851, 1.005),
}  # fmt: skip
ORDERS = ["rank", "fifo", "rank-queued"]


def heterog(*words):
    done = subprocess.run([str(PROGRAM), *map(str, words)], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"heterog {words[0]} ended with {done.returncode}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--authors", action="store_true", help="links as the authors' code has them")
    options = parser.parse_args()
    cluster, cases = TABLES[1]
    cluster += "-authors" if options.authors else ""
    print(f"HeteroG Table 7 on {cluster}, seconds a step; planned on: {machine()}\n")
    print(f"{'model (batch)':22} {'plan':10} " + " ".join(f"{order:>12}" for order in ORDERS)
          + "  speed-up of rank   paper")
    for model, batch, *_ in cases[:len(PAPER)]:
        files = ["--graph", ROOT / f"models/{model}.json.gz",
                 "--cluster", ROOT / f"configs/clusters/{cluster}.json"]
        for planner in ["ev-ar", "ev-ps", "portfolio"]:
            with tempfile.NamedTemporaryFile(suffix=".json") as plan:
                heterog("plan", *files, "--batch", batch, "--planner", planner, "--out", plan.name,
                        "--json")
                seconds = [heterog("simulate", *files, "--plan", plan.name, "--order", order,
                                   "--json")["step_seconds"] for order in ORDERS]
            rank, fifo = seconds[0], seconds[1]
            ours, theirs = PAPER[model]
            print(f"{f'{model} ({batch})':22} {planner:10} " + " ".join(f"{s:12.3f}" for s in seconds)
                  + f"  {100 * (fifo - rank) / rank:+14.1f} %"
                  + (f"  {100 * (theirs - ours) / ours:+5.1f} %" if planner == "portfolio" else ""),
                  flush=True)
    print(flush=True)
    subprocess.run([PROGRAM.parent / "order_steps"], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
