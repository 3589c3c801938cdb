"""HeteroG's Tables 2 and 3: which part of the operators runs in which way, in our plans and the paper's.

    scripts/reproduce.sh table2 [--out FOLDER]
    scripts/reproduce.sh table3 [--out FOLDER]

Every case of Table 1 is planned in one shot; Table 2 has those that fit data-parallel, Table 3 those
that do not. Prints per cent of the operators, as the decisions of the plan say (`heterog explain
--json`): on each GPU alone; on all 8 with even shares (EV) or with those of two replicas on each
V100 and one elsewhere (CP), with shares of the plan's own, on a part of the GPUs, each by parameter
server or by all-reduce. Then the same of the bytes of parameters, by where they are kept.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

from heterog_tables import ROOT, TABLES, machine
from learning_value import PROGRAM

CLUSTER, CASES = TABLES[1]
GPUS = ["v100/gpu0", "v100/gpu1", "1080ti-0/gpu0", "1080ti-0/gpu1", "1080ti-1/gpu0", "1080ti-1/gpu1",
        "p100/gpu0", "p100/gpu1"]  # fmt: skip
EVEN = [1] * 8
PROPORTIONAL = [2, 2] + [1] * 6
ALONE = [f"G{i}" for i in range(8)]
REPLICATED = [f"{share}-{sync}" for share in ("EV", "CP", "own", "part") for sync in ("PS", "AR")]

# Per cent in the paper: G0 to G7, then EV-PS, EV-AR, CP-PS, CP-AR.
PAPER = {
    ("vgg19", 192): (2.1, 0, 0, 0, 0, 0, 0, 0, 11.7, 28.5, 7.6, 50.1),
    ("resnet200", 192): (4.2, 0, 0, 0, 0, 0, 0, 0, 25.7, 29.2, 8.1, 32.8),
    ("inception_v3", 192): (1.8, 0, 0, 0, 0, 0, 0, 0, 18.4, 21.5, 21.7, 36.6),
    ("mobilenet_v2", 192): (3.7, 0, 0, 0, 0, 0, 0, 0, 31.7, 41.2, 9.5, 13.9),
    ("nasnet_a_large", 192): (3.6, 0, 0, 0, 0, 0, 0, 0, 8.8, 66.5, 10.4, 10.7),
    ("transformer6", 720): (3.8, 0, 0, 0, 0, 0, 0, 0, 12.2, 21.1, 18.2, 44.7),
    ("bert_large24", 48): (5.3, 0, 0, 0, 0, 0, 0, 0, 41.4, 23.9, 11.1, 18.3),
    ("xlnet_large24", 48): (6.8, 5.4, 0, 0, 0, 0, 0, 0, 33.5, 28.1, 11.6, 14.6),
    ("resnet200", 384): (28.7, 21.5, 14.7, 12.8, 6.5, 7.8, 0, 0, 2.8, 5.2, 0, 0),
    ("transformer24", 120): (33.6, 29.8, 7.2, 6.1, 4.4, 5.6, 2.1, 3.5, 1.7, 1.4, 2.2, 2.4),
    ("bert_large24", 96): (20.6, 17.7, 11.5, 10.8, 12.3, 8.2, 5.4, 3.6, 3.3, 2.8, 1.2, 2.6),
    ("xlnet_large24", 96): (22.3, 19.4, 9.8, 8.4, 10.3, 8.1, 5.2, 5.8, 2.3, 3.5, 3.3, 1.6),
    ("bert_large48", 24): (22.8, 21.6, 8.4, 7.2, 8.7, 7.9, 6.4, 4.3, 2.8, 3.5, 2.7, 3.7),
    ("xlnet_large48", 24): (28.6, 24.7, 5.4, 7.5, 6.3, 5.9, 3.3, 3.7, 2.9, 4.1, 2.7, 4.9),
}  # fmt: skip


def explained(model, batch, folder):
    """What `explain` says of the one-shot plan."""
    problem = ["--graph", ROOT / f"models/{model}.json.gz",
               "--cluster", ROOT / f"configs/clusters/{CLUSTER}.json"]
    run("plan", *problem, "--batch", batch, "--out", folder / "plan.json")
    return run("explain", *problem, "--plan", folder / "plan.json")


def run(*words):
    done = subprocess.run([str(word) for word in (PROGRAM, *words, "--json")],
                          stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"heterog {' '.join(map(str, words))}: ended with {done.returncode}")
    return json.loads(done.stdout)


def shared_by(samples, weights):
    """Whether the samples are the weights' shares, rounded."""
    quotas = [sum(samples) * weight / sum(weights) for weight in weights]
    return all(math.floor(quota) <= count <= math.ceil(quota)
               for count, quota in zip(samples, quotas, strict=True))


def column(decision):
    samples = {device["name"]: device["samples"] for device in decision["devices"]}
    if len(samples) == 1:
        return ALONE[GPUS.index(next(iter(samples)))]
    sync = {"ps": "PS", "all-reduce": "AR"}[decision["sync"]]
    if len(samples) < len(GPUS):
        return f"part-{sync}"
    counts = [samples[name] for name in GPUS]
    if shared_by(counts, EVEN):
        return f"EV-{sync}"
    return f"CP-{sync}" if shared_by(counts, PROPORTIONAL) else f"own-{sync}"


def percentages(decisions, weight):
    total = sum(decision[weight] for decision in decisions)
    parts = dict.fromkeys([*ALONE, *REPLICATED], 0.0)
    for decision in decisions:
        parts[column(decision)] += 100 * decision[weight] / total
    return parts


def of_paper(case):
    parts = dict.fromkeys([*ALONE, *REPLICATED], 0.0)
    return parts | dict(zip([*ALONE, *REPLICATED[:4]], PAPER[case], strict=True))


def row(title, who, parts, names, width, end=""):
    cells = "".join(f"{parts[name]:{width}.1f}" if parts[name] else f"{'-':>{width}}" for name in names)
    print(f"{title:21} {who:5}{cells}{end}".rstrip(), flush=True)


def stages_of(found):
    """Stages and micro-batches of a pipeline; micro-batches of a plan that has them alone."""
    if "pipeline" in found:
        pipeline = found["pipeline"]
        return f"{len(pipeline['stages'])} x {pipeline['micro_batches']}"
    most = max(decision["instances"] / len(decision["devices"]) for decision in found["decisions"])
    return f"1 x {most:.0f}" if most > 1 else "-"


def mean(rows, names):
    return sum(parts[name] for parts in rows for name in names) / len(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=int, choices=(2, 3), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="also write the decisions of each plan as JSON")
    options = parser.parse_args()

    cases = [(model, batch) for model, batch, _, *baselines in CASES
             if (options.table == 2) == (None not in baselines)]
    names = [*ALONE, *REPLICATED]
    print(f"HeteroG Table {options.table} on {CLUSTER}; planned on: {machine()}\n"
          "Per cent of the operators; stages x micro-batches of plans that have them.\n")
    print(f"{'model (batch)':21} {'':5}" + "".join(f"{name:>8}" for name in names) + "  stages")
    decided, theirs, bytes_of = {}, {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            found = explained(*case, Path(folder))
            decisions = found["decisions"]
            decided[case] = percentages(decisions, "operators")
            theirs[case] = of_paper(case)
            bytes_of[case] = percentages(decisions, "parameter_bytes")
            title = f"{case[0]} ({case[1]})"
            row(title, "ours", decided[case], names, 8, f"{stages_of(found):>8}")
            row("", "paper", theirs[case], names, 8)
            if options.out:
                options.out.mkdir(parents=True, exist_ok=True)
                (options.out / f"{case[0]}-{case[1]}.json").write_text(json.dumps(decisions, indent=1) + "\n")

    kept = {"one GPU": ALONE, **{name: [name] for name in REPLICATED}}
    print("\nPer cent of the bytes of parameters")
    print(f"{'model (batch)':21} {'':5}" + "".join(f"{name:>8}" for name in kept))
    for case, parts in bytes_of.items():
        sums = {name: sum(parts[one] for one in ones) for name, ones in kept.items()}
        row(f"{case[0]} ({case[1]})", "ours", sums, kept, 8)

    groups = {"on one GPU": ALONE, "on a part of them": REPLICATED[6:], "on all": REPLICATED[:6],
              "on several, by PS": REPLICATED[::2], "by AR": REPLICATED[1::2]}  # fmt: skip
    print("\nmeans over the cases, per cent of the operators, ours (paper's)")
    print(", ".join(f"{name} {mean(decided.values(), ones):.0f} ({mean(theirs.values(), ones):.0f})"
                    for name, ones in groups.items()))
    both = [case for case, parts in decided.items()
            if min(sum(parts[name] for name in REPLICATED[first::2]) for first in (0, 1)) > 0]
    print(f"{len(both)} of {len(cases)} plans have both PS and AR")


if __name__ == "__main__":
    main()
