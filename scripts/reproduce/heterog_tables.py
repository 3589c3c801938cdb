"""HeteroG's Tables 1 (8 GPUs) and 4 (12 GPUs) on our simulator, beside the paper's figures.

    scripts/reproduce.sh table1 [--authors] [--evaluations N] [--out FILE.json]

--authors takes the links at what the authors' code says of them (configs/clusters/*-authors.json).
Every case is planned in one shot, or with N simulated plans. A speed-up is (baseline - ours) / ours,
as in the paper. Ends with exit code 1 if a plan does not fit, or is slower than the best baseline.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = Path(os.environ.get("HETEROG_BIN") or ROOT / "build" / "release" / "bin" / "heterog")
BASELINES = ["ev-ps", "ev-ar", "cp-ps", "cp-ar"]

# Model, batch, then seconds in the paper: HeteroG, EV-PS, EV-AR, CP-PS, CP-AR (None: out of memory).
TABLES = {
    1: ("heterog-8gpu", [
        ("vgg19", 192, 0.462, 0.907, 0.653, 0.853, 0.591),
        ("resnet200", 192, 0.693, 1.431, 0.955, 1.273, 0.897),
        ("inception_v3", 192, 0.528, 0.933, 0.701, 0.911, 0.659),
        ("mobilenet_v2", 192, 0.232, 0.413, 0.368, 0.394, 0.325),
        ("nasnet_a_large", 192, 0.862, 1.244, 1.028, 1.203, 1.116),
        ("transformer6", 720, 0.298, 0.961, 0.496, 0.931, 0.361),
        ("bert_large24", 48, 0.451, 0.612, 1.064, 0.795, 1.049),
        ("xlnet_large24", 48, 0.851, 1.232, 1.551, 1.283, 1.566),
        ("resnet200", 384, 2.285, None, None, None, None),
        ("transformer24", 120, 1.147, None, None, None, None),
        ("bert_large24", 96, 2.241, None, None, None, None),
        ("xlnet_large24", 96, 4.254, None, None, None, None),
        ("bert_large48", 24, 1.892, None, None, None, None),
        ("xlnet_large48", 24, 3.468, None, None, None, None),
    ]),
    4: ("heterog-12gpu", [
        ("vgg19", 288, 0.503, 0.911, 0.682, 0.896, 0.633),
        ("resnet200", 288, 0.745, 1.522, 1.085, 1.298, 0.966),
        ("inception_v3", 288, 0.641, 0.987, 0.806, 0.954, 0.791),
        ("mobilenet_v2", 288, 0.255, 0.421, 0.411, 0.403, 0.337),
        ("nasnet_a_large", 288, 0.915, 1.385, 1.123, 1.275, 1.348),
        ("transformer6", 1080, 0.419, 1.133, 0.605, 1.112, 0.547),
        ("bert_large24", 72, 0.538, 0.825, 1.234, 0.821, 1.218),
        ("xlnet_large24", 72, 0.972, 1.447, 1.681, 1.485, 1.832),
        ("resnet200", 576, 3.031, None, None, None, None),
        ("transformer24", 180, 1.544, None, None, None, None),
        ("bert_large24", 144, 2.611, None, None, None, None),
        ("xlnet_large24", 144, 5.043, None, None, None, None),
        ("bert_large48", 36, 2.367, None, None, None, None),
        ("xlnet_large48", 36, 3.812, None, None, None, None),
    ]),
}  # fmt: skip


def compare(model, cluster, batch, evaluations):
    command = [PROGRAM, "compare", "--graph", ROOT / "models" / f"{model}.json.gz",
               "--cluster", ROOT / "configs" / "clusters" / f"{cluster}.json",
               "--batch", batch, "--planner", "portfolio", "--json"]
    if evaluations:
        command += ["--evaluations", evaluations]
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{model}, batch {batch}: heterog compare ended with {done.returncode}")
    return {row["name"]: row for row in json.loads(done.stdout)["planners"]}


def cell(seconds, ours):
    if seconds is None:
        return f"{'OOM':>15}"
    speedup = f"{100 * (seconds - ours) / ours:+.1f} %" if ours else "-"
    return f"{seconds:6.3f} {speedup:>8}"


def machine():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return f"{line.split(':')[1].strip()}, {os.cpu_count()} cores"
    return f"{os.cpu_count()} cores"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=int, choices=sorted(TABLES), help=argparse.SUPPRESS)
    parser.add_argument("--authors", action="store_true", help="links as the authors' code has them")
    parser.add_argument("--evaluations", type=int, help="simulated plans a case (default: one shot)")
    parser.add_argument("--out", type=Path, help="also write the rows as JSON")
    options = parser.parse_args()

    cluster, cases = TABLES[options.table]
    cluster += "-authors" if options.authors else ""
    print(f"HeteroG Table {options.table} on {cluster}; planned on: {machine()}\n"
          "Seconds a step, and HeteroG's (our plan's) speed-up over each baseline.\n")
    print(f"{'model (batch)':22} {'':6} {'HeteroG':>7} "
          + " ".join(f"{name.upper():>15}" for name in BASELINES) + "  planned in")
    rows, wrong, better, patterns, agrees = [], [], 0, [], []
    begin = time.monotonic()
    for model, batch, *paper in cases:
        found = compare(model, cluster, batch, options.evaluations)
        plan = found["portfolio"]
        ours = plan["step_seconds"] if plan["feasible"] else None
        times = [found[name]["step_seconds"] if found[name]["feasible"] else None
                 for name in BASELINES]
        everything = [row["step_seconds"] for name, row in found.items()
                      if name != "portfolio" and row["feasible"]]
        name = f"{model} ({batch})"
        print(f"{name:22} {'ours':6} " + (f"{ours:7.3f} " if ours else f"{'OOM':>7} ")
              + " ".join(cell(t, ours) for t in times) + f"  {plan['plan_seconds']:6.1f} s")
        print(f"{'':22} {'paper':6} {paper[0]:7.3f} " + " ".join(cell(t, paper[0]) for t in paper[1:]),
              flush=True)
        if ours is None or (everything and ours > min(everything)):
            wrong.append(name)
        better += bool(ours and all(ours < t for t in everything))
        patterns += [f"{name} {baseline}: {'runs' if t else 'out of memory'}, in the paper it "
                     f"{'runs' if p else 'does not fit'}"
                     for baseline, t, p in zip(BASELINES, times, paper[1:]) if bool(t) != bool(p)]
        agrees += [(times[i] < times[i + 1]) == (paper[1 + i] < paper[2 + i]) for i in (0, 2)
                   if None not in (*times[i:i + 2], *paper[1 + i:3 + i])]  # fmt: skip
        rows.append({"model": model, "batch": batch, "step_seconds": ours, "paper_seconds": paper[0],
                     "plan_seconds": plan["plan_seconds"],
                     "baselines": dict(zip(BASELINES, times)),
                     "paper_baselines": dict(zip(BASELINES, paper[1:]))})
    print(f"\n{len(cases)} cases in {time.monotonic() - begin:.0f} s: {len(cases) - len(wrong)} feasible "
          f"and never worse than the best baseline (Horovod and single devices among them), {better} "
          f"strictly better than every one; {len(patterns)} deviations in what fits")
    for line in patterns:
        print("  " + line)
    print(f"parameter servers or all-reduce, which is faster is as in the paper in {sum(agrees)} of "
          f"{len(agrees)} cases")
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1) + "\n")
    for name in wrong:
        print(f"  {name}: not feasible, or slower than a baseline")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
