"""Planners that place single operators beside data parallelism and `plan`: step, and whether it fits.

    scripts/reproduce.sh placements

Cases are those of FastT (Table 1, two and four V100), of Celeritas (Table 3) and of HeteroG's eight GPUs.
Every planner counts at its best order, and in both forms of the backward pass. An asterisk: it does not
fit. Ends with the placements' planning time.
"""

import json
import subprocess
import sys

from heterog_tables import PROGRAM, ROOT, machine

PLACERS = ["fastt-dpos", "fastt", "m-topo", "m-etf", "m-sct", "metis", "dfs-topo", "order-place", "celeritas"]
CASES = [
    ("lstm_lm", 64, "fastt-2gpu"), ("gnmt4", 128, "fastt-2gpu"), ("vgg19", 64, "fastt-4gpu"),
    ("inception_v3", 64, "fastt-4gpu"), ("bert_large24", 16, "fastt-2gpu"),
    ("inception_v3", 512, "celeritas-4gpu"), ("transformer12", 256, "celeritas-4gpu"),
    ("tensor_holography", 32, "celeritas-4gpu"), ("lstm_lm", 64, "heterog-8gpu"),
    ("nasnet_a_large", 192, "heterog-8gpu"), ("bert_large24", 48, "heterog-8gpu"),
]  # fmt: skip


def best(rows: list[dict]) -> dict:
    return min(rows, key=lambda row: (not row["feasible"], row["missing_bytes"], row["step_seconds"]))


def main() -> None:
    requests = {name: [name, f"{name}:backward=anywhere"] for name in PLACERS}
    for name in ("m-etf", "m-sct"):
        requests[name] += [f"{name}:links=queued", f"{name}:links=queued,backward=anywhere"]
    requests["fastt-dpos"] += [
        f"fastt-dpos:critical-device=no,links={links},backward={backward}"
        for links in ("free", "queued") for backward in ("with-forward", "anywhere")
    ]
    names = ["plan", "data parallel", *PLACERS]
    print(f"milliseconds a step, simulated; planned on: {machine()}")
    print(f"{'model (batch), cluster':40} " + " ".join(f"{name:>13}" for name in names))
    longest = 0.0
    for model, batch, cluster in CASES:
        command = [PROGRAM, "compare", "--json", "--graph", ROOT / f"models/{model}.json.gz",
                   "--cluster", ROOT / f"configs/clusters/{cluster}.json", "--batch", str(batch),
                   "--planner", "portfolio", *[one for all in requests.values() for one in all]]  # fmt: skip
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"heterog compare ended with {done.returncode}")
        rows = {row["name"]: row for row in json.loads(done.stdout)["planners"]}
        found = [rows["portfolio"], best([row for row in rows.values() if row["baseline"] and row["name"] != "single"])]
        found += [best([rows[one] for one in requests[name]]) for name in PLACERS]
        longest = max([longest, *(rows[one]["plan_seconds"] for all in requests.values() for one in all)])
        cells = [f"{1e3 * row['step_seconds']:.1f}{' ' if row['feasible'] else '*'}" for row in found]
        print(f"{f'{model} ({batch}), {cluster}':40} " + " ".join(f"{cell:>13}" for cell in cells), flush=True)
    print(f"\nlongest planning of a placement: {longest:.2f} s")


if __name__ == "__main__":
    main()
