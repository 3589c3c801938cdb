"""HeteroG's Fig. 9: our plans, Horovod, HetPipe, FlexFlow and Post on 12 GPUs (docs/results/hetpipe_horovod.md).

    scripts/reproduce.sh figure9 [--program build/release/bin/heterog] [--evaluations 1000]

HetPipe is its synchronous form: a pipeline in each machine, data parallelism across. FlexFlow and Post search
with --evaluations simulated plans, ours is one shot. A gain is
(theirs - ours) / ours. The paper draws the figure without numbers, and says that HeteroG is faster by
16.4 to 391.8 % than HetPipe, FlexFlow, Horovod and Post.
"""

import argparse
import tempfile
from pathlib import Path

from heterog_tables import TABLES
from pipelines import ROOT, machine
from spp_tables import Planning, cell, gain


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--program", type=Path,
                        default=ROOT / "build" / "release" / "bin" / "heterog")  # fmt: skip
    parser.add_argument("--evaluations", type=int, default=1000)
    options = parser.parse_args()
    searched = ("--evaluations", options.evaluations)
    theirs = {"horovod": (), "hetpipe": (), "flexflow": searched, "post": searched}
    cluster, cases = TABLES[4]
    print(f"HeteroG Fig. 9 on {cluster}, seconds a step; planned on: {machine()}\n")
    print(f"{'model (batch)':24} {'ours':>7} " + " ".join(f"{name:>16}" for name in theirs))
    with tempfile.TemporaryDirectory() as folder:
        planning = Planning(options.program, folder)
        for model, batch, *_ in cases[:8]:
            ours = planning.seconds(model, batch, cluster, "portfolio")
            cells = []
            for planner, words in theirs.items():
                step = planning.seconds(model, batch, cluster, planner, *words)
                cells.append(f"{cell(step):>7} {gain(step, ours):>8}")
            print(f"{f'{model} ({batch})':24} {cell(ours):>7} {' '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
