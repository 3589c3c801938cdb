"""How far planners are from the best known on 48 problems that nothing here was tuned or trained on.

    scripts/reproduce.sh wide [--sizes small medium large] [--least GPUS] [--models NAME ...]
        [--rows NAME ...] [--beside ROW] [--seeds K] [--known K] [--policy FILE]

A row is a planner with a budget (ROWS). Prints, for each size and for all, how much longer each row's
step is than the best known: geometric mean over problems and seeds with a 95 % interval (bootstrap over
problems), worst, how many problems are within 3 %, and on how many all seeds are within 3 % of each other.
--beside says how much longer the other rows' steps are than those of one row, problem by problem, and
on how many by half a per cent and more.
best_known.json beside this file holds the best of all runs so far; --known searches each problem long
first, with so many seeds, by `plan`, by annealing and by the policy (LONG plans each), to find better
ones; days for all problems. HETEROG_BIN names another program than that of the release preset.
Models that are not in the zoo are exported first.
"""

import argparse
import json
import subprocess
import tempfile
from functools import cache
from itertools import product
from math import exp, log
from pathlib import Path
from random import Random
from statistics import mean, median

import learning_value
from wide_problems import SIZES, devices_of, problems, size_of, write_cluster

OUT = learning_value.ROOT / "out" / "wide"
ROWS = {
    "best data parallelism": (["ev-ps", "ev-ar", "cp-ps", "cp-ar", "horovod"], []),
    "formula": (["estimates"], []),
    "uniform rows": (["rows"], []),
    "policy untrained, 10 plans": (["policy:answer=likely"], []),
    "policy alone, 10 plans": (["policy:answer=likely"], []),
    "plan, 30 plans": (["portfolio"], ["--evaluations", 30]),
    "plan with policy, 30 plans": (["policy:answer=searched"], ["--evaluations", 30]),
    "plan, 100 plans": (["portfolio"], ["--evaluations", 100]),
    "plan with policy, 100 plans": (["policy:answer=searched"], ["--evaluations", 100]),
    "plan, 500 plans": (["portfolio"], ["--evaluations", 500]),
    "fine-tuned, 500 plans": (["policy"], ["--evaluations", 500]),
    "plan, one shot": (["portfolio"], []),
    "plan with policy, one shot": (["policy:answer=searched"], []),
    "plan, 1 s": (["portfolio"], ["--budget", 1]),
    "plan with policy, 1 s": (["policy:answer=searched"], ["--budget", 1]),
    "plan, 10 s": (["portfolio"], ["--budget", 10]),
    "plan with policy, 10 s": (["policy:answer=searched"], ["--budget", 10]),
}
UNTRAINED = "policy untrained, 10 plans"
# Policies that are trained by the config of the shipped one, but for these settings; an hour or two
# each, on demand alone.
TRAINED = {"policy of another seed": {"seed": 1},
           "policy of the last weights": {"averaged_steps": 0},
           "policy with graph attention": {"gat_layers": 2},
           "policy with Transformer-XL": {"txl_layers": 2},
           "policy with both": {"gat_layers": 2, "txl_layers": 2}}  # fmt: skip
ROWS |= {row: (["policy:answer=likely"], []) for row in TRAINED}
# Hours for all problems.
ON_DEMAND = {"plan, 500 plans", "fine-tuned, 500 plans", *TRAINED}
SEEDLESS = {"best data parallelism", "formula", "uniform rows", UNTRAINED, "policy alone, 10 plans", *TRAINED}


# Plans of a long search, and who searches: the policy in groups of its own.
LONG_PLANNERS = "portfolio", "annealing", "policy"
LONG = {"small": 20000, "medium": 3000, "large": 600}


@cache
def untrained(folder):
    """A policy as training begins: after one step so small that it changes no answer."""
    settings = {"steps": 1, "random_cases": 1, "cases_per_step": 1, "samples": 6, "learning_rate": 1e-9}
    given = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    command = [learning_value.PROGRAM, "train", "--config", "configs/train/zoo.json", "--out", folder / "untrained"]
    subprocess.run([*command, *given], cwd=learning_value.ROOT, check=True, stdout=subprocess.DEVNULL)
    return folder / "untrained/policy.ckpt"


@cache
def trained(row):
    """A policy that is trained with the row's settings; one that was trained is used again."""
    folder = OUT / row.replace(" ", "-")
    if not (folder / "policy.ckpt").is_file():
        command = [learning_value.PROGRAM, "train", "--config", "configs/train/zoo.json", "--out", folder]
        given = [word for key, value in TRAINED[row].items() for word in ("--set", f"{key}={value}")]
        subprocess.run([*command, *given], cwd=learning_value.ROOT, check=True, stdout=subprocess.DEVNULL)
    return folder / "policy.ckpt"


def steps_of(case, row, seeds, folder, policy):
    """One a seed, none where nothing fits; seconds of planning."""
    requests, budget = ROWS[row]
    steps, took = [], []
    for seed in range(1 if row in SEEDLESS else seeds):
        found = []
        for request in requests:
            checkpoint = untrained(folder) if row == UNTRAINED else policy
            if row in TRAINED:
                checkpoint = trained(row)
            if checkpoint and request.startswith("policy"):
                request += f",checkpoint={checkpoint}"
            found.append(learning_value.run(case, request, budget, seed, folder))
        fitting = [step for step, _, _ in found if step is not None]
        steps.append(min(fitting) if fitting else None)
        took.append(sum(seconds for _, _, seconds in found))
    return steps, mean(took)


def interval(logs, rng):
    """Of their mean, 95 % by bootstrap."""
    means = sorted(mean(rng.choices(logs, k=len(logs))) for _ in range(2000))
    return means[49], means[1950]


def percent(log_ratio):
    return f"{100 * (exp(log_ratio) - 1):+.1f}"


def print_steps(case, row, steps, took):
    said = " ".join("-" if step is None else f"{1e3 * step:.2f}" for step in steps)
    print(f"{' '.join(map(str, case)):<40} {row:<30} {said} ({took:.1f} s)", flush=True)


def chosen(size, least, models):
    """The problems of a size, on clusters of so many devices, of these models or all."""
    return [(model, batch, cluster) for model, batch, cluster in problems()
            if size_of(cluster) == size and devices_of(cluster) >= least and (not models or model in models)]  # fmt: skip


def print_rows(title, of_row, known):
    print(f"\n{title}")
    print(f"{'row':<30} {'mean':>7} {'95 %':>16} {'worst':>8} {'within 3 %':>11} {'seeds':>9} {'nothing':>8} "
          f"{'planning s':>11}")
    for row, found in of_row.items():
        logs, nothing, alike = [], 0, 0
        for case, (steps, _) in found.items():
            best = known.get(" ".join(map(str, case)))
            if best is None:
                continue  # nothing is known to fit
            if any(step is None for step in steps):
                nothing += 1
                continue
            logs.append(mean(log(step / best["step_seconds"]) for step in steps))
            alike += max(steps) <= 1.03 * min(steps)
        if not logs:
            continue
        low, high = interval(logs, Random(1))
        near = sum(value <= log(1.03) for value in logs)
        took = mean(seconds for _, seconds in found.values())
        seeds = f"{alike} of {len(logs)}" if max(len(steps) for steps, _ in found.values()) > 1 else "-"
        print(f"{row:<30} {percent(mean(logs)):>7} {percent(low) + ' to ' + percent(high):>16} "
              f"{percent(max(logs)):>8} {f'{near} of {len(logs) + nothing}':>11} {seeds:>9} {nothing:>8} "
              f"{took:>11.1f}",
              flush=True)  # fmt: skip


def print_beside(title, of_row, beside):
    """Of problems where both rows find something."""
    print(f"\n{title}: longer than {beside}, problem by problem")
    print(f"{'row':<30} {'mean':>7} {'95 %':>16} {'median':>8} {'shorter':>8} {'longer':>7} {'of':>4}")
    for row, found in of_row.items():
        logs = []
        for case, (steps, _) in found.items():
            others = of_row[beside][case][0]
            if row != beside and None not in (*steps, *others):
                logs.append(mean(map(log, steps)) - mean(map(log, others)))
        if logs:
            low, high = interval(logs, Random(1))
            print(f"{row:<30} {percent(mean(logs)):>7} {percent(low) + ' to ' + percent(high):>16} "
                  f"{percent(median(logs)):>8} {sum(value < log(0.995) for value in logs):>8} "
                  f"{sum(value > log(1.005) for value in logs):>7} {len(logs):>4}", flush=True)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=SIZES)
    parser.add_argument("--least", type=int, default=0, metavar="GPUS", help="leave out clusters of fewer")
    parser.add_argument("--models", nargs="+", help="these alone")
    parser.add_argument("--rows", nargs="+", default=[row for row in ROWS if row not in ON_DEMAND], choices=ROWS)
    parser.add_argument("--beside", choices=ROWS, help="how much longer than this one the other rows are")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--known", type=int, default=0, metavar="K", help="search long first, with so many seeds")
    parser.add_argument("--policy", type=Path, help="in place of the shipped one")
    parser.add_argument("--cases", action="store_true", help="print every problem, too")
    given = parser.parse_args()
    if given.beside and given.beside not in given.rows:
        parser.error(f"--beside {given.beside}: is not among the rows")
    known = json.loads(learning_value.KNOWN.read_text()) if learning_value.KNOWN.is_file() else {}

    def show(title, of_row):
        print_rows(title, of_row, known)
        if given.beside:
            print_beside(title, of_row, given.beside)

    print(f"{learning_value.machine()}, release preset; {given.seeds} seed(s)", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        of_all = {row: {} for row in given.rows}
        for size in given.sizes:
            of_row = {row: {} for row in given.rows}
            for case in chosen(size, given.least, given.models):
                write_cluster(case[2], OUT)
                plain = learning_value.expect_costs(known, case, folder)
                for planner, seed in product(LONG_PLANNERS, range(given.known)):
                    long = ["--evaluations", LONG[size]]
                    step, _, took = learning_value.run(case, planner, long, seed, folder)
                    learning_value.learn(known, case, step, f"{planner}, {LONG[size]} plans", plain, True)
                    if given.cases:
                        print_steps(case, f"{planner}, {LONG[size]} plans", [step], took)
                for row in given.rows:
                    steps, took = steps_of(case, row, given.seeds, folder, given.policy)
                    of_row[row][case] = steps, took
                    for step in steps:
                        learning_value.learn(known, case, step, row, plain, True)
                    if given.cases:
                        print_steps(case, row, steps, took)
            show(f"{size}, up to {SIZES[size]} GPUs", of_row)
            for row, found in of_row.items():
                of_all[row] |= found
        if len(given.sizes) > 1:
            show("all", of_all)


if __name__ == "__main__":
    main()
