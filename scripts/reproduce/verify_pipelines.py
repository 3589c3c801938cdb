"""Proves that pipelines train as one device, model by model (docs/pipelines.md).

    scripts/reproduce.sh verify_pipelines [--models NAME ...] [--random 600]

`heterog verify --planner P` for every planner of pipelines on every tiny model of the zoo, three
clusters, batches 16 and 17, and 2, 3 and 5 micro-batches, each in one of the ways of keeping turns
and of recomputation that the model allows, in turn. Then --random strategies drawn by the planner
`random`, whole and in 2, 3 and 5 micro-batches, of which the simulation is checked
(`simulate --check`). Prints a line a model, and ends with exit code 1 if anything differs.
"""

import argparse
import concurrent.futures
import itertools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PLANNERS = ("spp", "gpipe", "pipedream", "hetpipe", "folded", "accumulate")
CLUSTERS = ("heterog-4gpu", "spp-a", "office-mixed")
WAYS = ("turns=strict", "turns=priorities", "turns=strict,recompute=all",
        "turns=priorities,recompute=all")  # fmt: skip
STRICT = "turns: strict, but layers"


class Sweep:
    def __init__(self, program):
        self.program = program

    def run(self, *words):
        command = [str(word) for word in (self.program, *words)]
        return subprocess.run(command, capture_output=True, text=True, env=os.environ
                              | {"OMP_NUM_THREADS": "1"})  # fmt: skip

    def verify(self, model, cluster, batch, planner, micro_batches, way):
        options = f"{planner}:micro_batches={micro_batches}"
        if planner == "folded":  # has priorities alone
            options += ",recompute=all" if "recompute=all" in way else ""
        elif planner != "accumulate":
            options += f",{way}"
        words = ("verify", "--graph", model, "--cluster", cluster_file(cluster), "--batch", batch,
                 "--steps", 2, "--planner", options)  # fmt: skip
        done = self.run(*words)
        if done.returncode == 2 and STRICT in done.stderr:
            return self.verify(model, cluster, batch, planner, micro_batches,
                               way.replace("strict", "priorities"))  # fmt: skip
        if done.returncode != 0:
            return f"{options} on {cluster}, batch {batch}: {done.stderr.strip()}"
        return None

    def check(self, model, seed, micro_batches):
        with tempfile.TemporaryDirectory() as folder:
            plan = Path(folder) / "plan.json"
            named = ("--graph", model, "--cluster", cluster_file("heterog-4gpu"))
            done = self.run("plan", *named, "--batch", 17, "--planner", "random:evaluations=1",
                            "--seed", seed, "--accumulate", micro_batches, "--out", plan)  # fmt: skip
            if done.returncode not in (0, 3):
                return f"random {seed}: {done.stderr.strip()}"
            done = self.run("simulate", *named, "--plan", plan, "--check")
        if done.returncode not in (0, 3):
            return f"random {seed}, {micro_batches} micro-batches: {done.stderr.strip()}"
        return None


def cluster_file(name):
    return ROOT / "configs" / "clusters" / f"{name}.json"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--models", nargs="*", help="of the zoo, without -tiny; all without")
    parser.add_argument("--random", type=int, default=600)
    parser.add_argument("--program", type=Path,
                        default=ROOT / "build" / "release" / "bin" / "heterog")  # fmt: skip
    options = parser.parse_args()
    files = sorted(ROOT.glob("models/*-tiny.json.gz"))
    if options.models:
        files = [ROOT / "models" / f"{name}-tiny.json.gz" for name in options.models]
    sweep = Sweep(options.program)
    wrong = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for file in files:
            cases = list(itertools.product(CLUSTERS, (16, 17), PLANNERS, (2, 3, 5)))
            ways = [WAYS[i % len(WAYS)] for i in range(len(cases))]
            said = list(pool.map(lambda case, way, file=file: sweep.verify(file, *case, way), cases,
                                 ways))  # fmt: skip
            found = [one for one in said if one]
            wrong += len(found)
            print(f"{file.name.split('-tiny')[0]:20} {len(said) - len(found)} of {len(said)} as one "
                  "device", *found, sep="\n    " if found else "", flush=True)  # fmt: skip
        each = list(itertools.product(range(options.random), (1, 2, 3, 5)))
        said = list(pool.map(lambda one: sweep.check(files[one[0] % len(files)], *one), each))
        found = [one for one in said if one]
        wrong += len(found)
        print(f"{'random strategies':20} {len(said) - len(found)} of {len(said)} simulated as the "
              "check says", *found[:10], sep="\n    " if found else "")  # fmt: skip
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
