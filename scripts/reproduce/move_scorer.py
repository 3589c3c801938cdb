"""What the scorer of moves is worth: how many plans searches simulate to come near the best known.

    scripts/reproduce/move_scorer.sh [--cases MODEL ...] [--clusters NAME ...] [--planners NAME ...]
        [--evaluations N] [--seeds K] [--drawn N] --scorer FILE

Every planner plans every case with the same seeds and the same number of evaluations, with and
without the scorer. Printed are the medians over the seeds of the evaluations after which the best
plan so far is within 2 % and within 5 % of the best known ("-": not within so many), and the mean
of the steps in the end. The best known is that of any of these runs or of best_known.json, which
is not written. In the end: the median over all of how many times as many evaluations the scorer
takes, and the worst; a run that does not get there counts as the whole budget. --scorer names what
`heterog train --moves` has made without the models in question: docs/search.md says how. HETEROG_BIN names another program
than that of the release preset.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean, median

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = os.environ.get("HETEROG_BIN") or ROOT / "build" / "release" / "bin" / "heterog"
KNOWN = Path(__file__).with_name("best_known.json")
BATCHES = {"vgg19": 192, "alexnet": 512, "mobilenet_v2": 192, "transformer6": 720,
           "bert_large24": 48, "resnet152": 192, "densenet121": 256}  # fmt: skip
SCALES = {"heterog-8gpu": 1, "heterog-8gpu-10gbe": 1, "office-mixed": 1, "dgx-h100-mixed": 4}
PLANNERS = {"local-search": ("local-search", ["patience=0"]), "annealing": ("annealing", []),
            "plan": ("portfolio", [])}  # fmt: skip
LINE = re.compile(r"(\d+) evaluations: ([0-9.]+) s is the best of")


def run(case, request, evaluations, seed, folder):
    """The best step after each number of evaluations at which it changed."""
    model, batch, cluster = case
    command = [PROGRAM, "plan", "--graph", ROOT / f"models/{model}.json.gz",
               "--cluster", ROOT / f"configs/clusters/{cluster}.json", "--batch", batch,
               "--planner", request, "--evaluations", evaluations, "--seed", seed, "--threads", 1,
               "--json", "--out", folder / "plan.json", "--log-level", "debug"]  # fmt: skip
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{case}: heterog plan ended with {done.returncode}: {done.stderr[-500:]}")
    path, best = [], float("inf")
    for count, step in LINE.findall(done.stderr):
        if float(step) < best:
            best = float(step)
            path.append((int(count), best))
    return path


def request_of(name, settings, more):
    return f"{name}:{','.join(settings + more)}" if settings + more else name


def reached(path, step):
    return next((count for count, best in path if best <= step), None)


def shown(counts):
    """The median; one that was not reached counts as more than all others."""
    middle = sorted(counts, key=lambda count: (count is None, count))[len(counts) // 2]
    return "-" if middle is None else str(middle)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--cases", nargs="+", default=list(BATCHES), choices=BATCHES)
    parser.add_argument("--clusters", nargs="+", default=list(SCALES), choices=SCALES)
    parser.add_argument("--planners", nargs="+", default=list(PLANNERS), choices=PLANNERS)
    parser.add_argument("--evaluations", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--scorer", type=Path, required=True)
    parser.add_argument("--drawn", type=int, help="moves drawn for each that is simulated")
    given = parser.parse_args()
    scored = [f"scorer={given.scorer}"]
    scored += [f"drawn={given.drawn}"] if given.drawn else []
    ways = {"without": [], "with": scored}
    known = json.loads(KNOWN.read_text()) if KNOWN.is_file() else {}
    ratios = {2: [], 5: []}
    worse = []
    print(f"evaluations to within 2 and 5 % of the best known, medians of {given.seeds} seeds, "
          f"without and with the scorer; steps after {given.evaluations}, means")
    print(f"{'case':<40}{'planner':<14}{'2 %':>7}{'with':>7}{'5 %':>8}{'with':>7}"
          f"{'step ms':>10}{'with':>10}{'':>8}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        for model in given.cases:
            for cluster in given.clusters:
                case = (model, BATCHES[model] * SCALES[cluster], cluster)
                paths = {}
                for planner in given.planners:
                    for way, settings in ways.items():
                        request = request_of(*PLANNERS[planner], settings)
                        paths[planner, way] = [run(case, request, given.evaluations, seed, Path(name))
                                               for seed in range(given.seeds)]
                best = min(path[-1][1] for some in paths.values() for path in some)
                key = " ".join(map(str, case))
                if key in known:
                    best = min(best, known[key]["step_seconds"])
                for planner in given.planners:
                    cells = []
                    for part in (2, 5):
                        counts = {way: [reached(path, best * (1 + part / 100))
                                        for path in paths[planner, way]] for way in ways}
                        cells += [shown(counts["without"]), shown(counts["with"])]
                        middles = [median(given.evaluations if count is None else count
                                          for count in counts[way]) for way in ways]
                        if any(cell != "-" for cell in cells[-2:]):
                            ratios[part].append((middles[1] / middles[0], f"{key} {planner}"))
                    steps = [1000 * mean(path[-1][1] for path in paths[planner, way])
                             for way in ways]
                    worse.append((steps[1] / steps[0] - 1, f"{key} {planner}"))
                    print(f"{key:<40}{planner:<14}{cells[0]:>7}{cells[1]:>7}{cells[2]:>8}"
                          f"{cells[3]:>7}{steps[0]:>10.2f}{steps[1]:>10.2f}"
                          f"{100 * worse[-1][0]:>+7.2f}%", flush=True)
    for part, some in ratios.items():
        if some:
            worst, where = max(some)
            print(f"within {part} %: {median(ratio for ratio, _ in some):.2f} times the evaluations in "
                  f"the median of {len(some)}, at most {worst:.2f} ({where})")
    if worse:
        most, where = max(worse)
        print(f"at equal evaluations: {100 * mean(part for part, _ in worse):+.2f} % in the mean, "
              f"at most {100 * most:+.2f} % ({where})")


if __name__ == "__main__":
    main()
