"""What each part of `heterog plan` is worth: one shot without it, beside one shot with all.

    scripts/reproduce.sh ablation [--seeds N] [--parts PART ...] [--sets tables clusters pipelines branches] [--kept FILE]

Cases: HeteroG's Tables 1 and 4 (28), other clusters (15), and the two of pipelines on spp-a; if asked for by
--sets branches, recurrent and branching models with few samples (50). Of each part:
steps without it by the step with all, geometric mean over all cases and seeds, the worst case and the best,
how many are longer and shorter by more than 0.3 %; and what part of the planning time it takes, by the
processor's own clock. What has a ratio near 1 everywhere earns nothing. An hour and more on two cores:
--kept FILE holds each plan's step, and goes on from those that are there (of the same build, as one trusts).
"""

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from heterog_tables import PROGRAM, ROOT, TABLES, machine

PARTS = ("estimates memory-fill other-orders settling widths halving sync-split pipelines moved-pipelines "
         "leave-out order servers placements together").split()  # fmt: skip
CLUSTERS = [
    (model, batch * times, cluster)
    for cluster, times in (("heterog-8gpu-10gbe", 1), ("office-mixed", 1), ("dgx-h100-mixed", 4),
                           ("mixed-64gpu", 16), ("mixed-512gpu", 128))
    for model, batch in (("vgg19", 192), ("resnet50", 192), ("bert_large24", 48))
]  # fmt: skip
SETS = {
    "tables": [(model, batch, cluster) for cluster, rows in TABLES.values() for model, batch, *_ in rows],
    "clusters": CLUSTERS,
    "pipelines": [("bert_large24", 16, "spp-a"), ("bert_large48", 16, "spp-a")],
}
# Operators that can run side by side, and few samples a device to share.
SETS["branches"] = [
    (model, each * devices, cluster)
    for cluster, devices in (("fastt-2gpu", 2), ("fastt-4gpu", 4), ("celeritas-4gpu", 4), ("heterog-4gpu", 4),
                             ("workstation-3090-4090", 2))
    for model, samples in (("lstm_lm", (8, 16, 32)), ("gnmt4", (8, 16, 32)), ("nasnet_a_large", (8, 32)),
                           ("inception_v3", (4, 16)))
    for each in samples
]  # fmt: skip
MARGIN = 0.003


def plan(case, part, seed):
    """Seconds of the step, infinite where nothing fits, and of the processor."""
    model, batch, cluster = case
    with tempfile.TemporaryDirectory() as folder:
        words = [PROGRAM, "plan", "--graph", ROOT / f"models/{model}.json.gz", "--cluster",
                 ROOT / f"configs/clusters/{cluster}.json", "--batch", batch, "--seed", seed, "--json",
                 "--planner", f"portfolio:without={part}", "--out", f"{folder}/plan.json"]  # fmt: skip
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 3):
        sys.exit(f"{' '.join(map(str, case))} without {part}: {done.stderr}")
    step = json.loads(done.stdout)["step_seconds"] if done.returncode == 0 else math.inf
    return step, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


class Kept:
    """Steps and processor times of cases, parts and seeds, those of a file among them."""

    def __init__(self, file):
        self.file, self.rows = file, {}
        for line in file.read_text().splitlines() if file and file.exists() else ():
            row = json.loads(line)
            self.rows[tuple(row["case"]), row["part"], row["seed"]] = (row["step"] or math.inf, row["processor"])

    def plan(self, case, part, seed):
        if (case, part, seed) not in self.rows:
            step, processor = self.rows[case, part, seed] = plan(case, part, seed)
            if self.file:
                row = {"case": case, "part": part, "seed": seed, "step": None if step == math.inf else step,
                       "processor": round(processor, 2)}  # fmt: skip
                with self.file.open("a") as out:
                    out.write(json.dumps(row) + "\n")
        return self.rows[case, part, seed]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--sets", nargs="+", default=["tables", "clusters", "pipelines"], choices=list(SETS))
    parser.add_argument("--kept", type=Path, help="file of plans that were made, and will be")
    parser.add_argument("--verbose", action="store_true", help="each case that differs by more than 0.3 %%")
    options = parser.parse_args()
    cases = [case for name in options.sets for case in SETS[name]]
    runs = [(case, seed) for case in cases for seed in range(options.seeds)]
    print(f"{machine()}, release preset, {os.cpu_count()} threads; {len(cases)} cases, {options.seeds} seed(s), one shot\n")
    kept = Kept(options.kept)
    whole = {run: kept.plan(run[0], "nothing", run[1]) for run in runs}
    print(f"{'without':18}{'mean':>8}{'worst':>9}{'best':>9}{'longer':>8}{'shorter':>9}{'planning':>10}   worst case")
    for part in options.parts:
        less = {run: kept.plan(run[0], part, run[1]) for run in runs}
        ratios = {run: less[run][0] / whole[run][0] for run in runs}
        worst = max(ratios, key=ratios.get)
        finite = [ratio for ratio in ratios.values() if ratio < math.inf]
        mean = math.exp(sum(map(math.log, finite)) / len(finite))
        time = sum(one[1] for one in less.values()) / sum(one[1] for one in whole.values())
        longer, shorter = (sum(test(ratio) for ratio in ratios.values())
                           for test in (lambda r: r > 1 + MARGIN, lambda r: r < 1 - MARGIN))  # fmt: skip
        print(f"{part:18}{mean:8.4f}{ratios[worst]:9.4f}{min(finite):9.4f}{longer:8}{shorter:9}{time:10.2f}   "
              f"{' '.join(map(str, worst[0]))}", flush=True)  # fmt: skip
        for run, ratio in ratios.items() if options.verbose else ():
            if abs(ratio - 1) > MARGIN:
                print(f"    {' '.join(map(str, run[0]))}, seed {run[1]}: {ratio:.4f}", flush=True)


if __name__ == "__main__":
    main()
