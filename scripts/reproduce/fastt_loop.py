"""FastT's loop from unknown costs: what it has come to after 1, 2, 4, 8 and 16 rounds.

    scripts/reproduce.sh fastt_loop [--seeds 5] [--spread 0.3]

Costs are hidden (docs/planners.md): the planner knows no time of any operator or transfer when it begins, and
learns the hidden ones from the plans that it tries. Printed for each seed: its step over that of the best
data parallelism under the same costs. 16 rounds with costs that are as believed stand below.
"""

import argparse
import json
import subprocess
import sys

from heterog_tables import PROGRAM, ROOT, machine

CASES = [("lstm_lm", 64, "fastt-2gpu"), ("gnmt4", 128, "fastt-2gpu"), ("vgg19", 64, "fastt-4gpu"),
         ("vgg19", 96, "heterog-4gpu"),
         ("lstm_lm", 64, "workstation-3090-4090")]  # fmt: skip
ROUNDS = [1, 2, 4, 8, 16]


def ratios(model: str, batch: int, cluster: str, *hidden: str) -> list[float]:
    command = [PROGRAM, "compare", "--json", "--graph", ROOT / f"models/{model}.json.gz", "--cluster",
               ROOT / f"configs/clusters/{cluster}.json", "--batch", str(batch), *hidden, "--planner",
               *[f"fastt:rounds={rounds}" for rounds in ROUNDS]]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"heterog compare ended with {done.returncode}")
    rows = json.loads(done.stdout)["planners"]
    best = min(row["step_seconds"] for row in rows if row["baseline"] and row["feasible"] and row["name"] != "single")
    return [row["step_seconds"] / best for row in rows if not row["baseline"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--spread", type=float, default=0.3)
    options = parser.parse_args()
    print(f"step over the best data parallelism, simulated; planned on: {machine()}")
    print(f"{'model (batch), cluster':30} {'seed':>8} " + " ".join(f"{f'{rounds} rounds':>10}" for rounds in ROUNDS))
    for model, batch, cluster in CASES:
        where = f"{model} ({batch}), {cluster}"
        for seed in range(1, options.seeds + 1):
            found = ratios(model, batch, cluster, "--hidden", f"{seed}:{options.spread}")
            print(f"{where:30} {seed:8} " + " ".join(f"{one:10.3f}" for one in found), flush=True)
        print(f"{where:30} {'believed':>8} " + " ".join(f"{one:10.3f}" for one in ratios(model, batch, cluster)),
              flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
