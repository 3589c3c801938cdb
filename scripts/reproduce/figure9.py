"""HeteroG's Fig. 9 as far as it is here: our plans, Horovod and HetPipe on 12 GPUs (docs/results/hetpipe_horovod.md).

    scripts/reproduce.sh figure9 [--program build/release/bin/heterog]

HetPipe is its synchronous form: a pipeline in each machine, data parallelism across. A gain is
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
    options = parser.parse_args()
    cluster, cases = TABLES[4]
    print(f"HeteroG Fig. 9 on {cluster}, seconds a step; planned on: {machine()}\n")
    print(f"{'model (batch)':24} {'ours':>7} {'Horovod':>15} {'HetPipe':>15}")
    with tempfile.TemporaryDirectory() as folder:
        planning = Planning(options.program, folder)
        for model, batch, *_ in cases[:8]:
            ours = planning.seconds(model, batch, cluster, "portfolio")
            cells = []
            for planner in ("horovod", "hetpipe"):
                theirs = planning.seconds(model, batch, cluster, planner)
                cells.append(f"{cell(theirs):>7} {gain(theirs, ours):>7}")
            print(f"{f'{model} ({batch})':24} {cell(ours):>7} {' '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
