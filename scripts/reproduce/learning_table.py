"""How the policy is trained, one change at a time, judged on models and clusters it has not seen.

    scripts/reproduce.sh learning_table [--variants NAME ...] [--set KEY=VALUE ...]

Trains a policy for every variant of configs/train/zoo.json, with four models left out, and lets it
plan these models, and two more that no policy is trained on, on clusters of configs/clusters. Prints,
as geometric means over the cases, how much longer the step is than the best known, from any of these
runs or those of learning_value: of the best of the ten most likely plans; of the planner `policy` with
100 and 400 simulated plans, beside `plan`'s. And the worst case of the ten against the best data
parallelism. --set changes all variants: steps, random_cases, ….
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

from heterog_tables import ROOT, machine
from learning_value import KNOWN, PROGRAM, expect_costs, learn, run

SEEDS = (0, 1)
LEFT_OUT = ["vgg19", "mobilenet_v2", "transformer6", "bert_large24"]
CASES = [("vgg19", 192, "heterog-8gpu"), ("mobilenet_v2", 192, "heterog-8gpu"),
         ("transformer6", 720, "heterog-8gpu"), ("bert_large24", 48, "heterog-8gpu"),
         ("vgg19", 192, "heterog-8gpu-10gbe"), ("bert_large24", 48, "heterog-8gpu-10gbe"),
         ("resnet152", 192, "heterog-8gpu-10gbe"), ("vgg19", 192, "office-mixed"),
         ("transformer12", 240, "office-mixed"), ("vgg19", 768, "dgx-h100-mixed"),
         ("bert_large24", 192, "dgx-h100-mixed"), ("vgg19", 2048, "mixed-64gpu")]  # fmt: skip
VARIANTS = {
    "as shipped": {},
    "with Transformer-XL": {"txl_layers": 2},
    "with graph attention": {"gat_layers": 2},
    "the formula alone": {"learning_rate": 1e-9, "steps": 1, "random_cases": 4},
}


def train(name, settings, out):
    """Path of the policy."""
    words = ["--set", f"leave_out={json.dumps(LEFT_OUT)}"]
    for key, value in settings.items():
        words += ["--set", f"{key}={value}"]
    folder = out / name.replace(" ", "-")
    subprocess.run([str(PROGRAM), "train", "--config", str(ROOT / "configs/train/zoo.json"), "--out",
                    str(folder), *words, "--log-level", "error"],
                   stdout=subprocess.DEVNULL, check=True)
    return folder / "policy.ckpt"


def data_parallelism(case, folder):
    steps = [run(case, planner, [], 0, folder)[0] for planner in ("ev-ps", "ev-ar", "cp-ps", "cp-ar")]
    return min((step for step in steps if step), default=None)


def judge(case, policy, folder):
    """Steps in seconds: of the most likely strategy, of plans with 100 and 400 evaluations."""
    steps = {}
    if policy:
        steps["likely"] = [run(case, f"policy:answer=likely,checkpoint={policy}", [], 0, folder)[0]]
    request = f"policy:checkpoint={policy}" if policy else "portfolio"
    for evaluations in (100, 400):
        steps[evaluations] = [run(case, request, ["--evaluations", evaluations], seed, folder)[0]
                              for seed in SEEDS]
    return steps


def mean_over(cases, results, column, best):
    """Of the steps over the best known, the geometric mean, in per cent."""
    logs = []
    for case in cases:
        for step in results[case].get(column, []):
            logs.append(math.log(step / best[case]) if step else math.inf)
    if not logs:
        return "-"
    mean = sum(logs) / len(logs)
    return f"{100 * math.expm1(mean):+.1f} %" if math.isfinite(mean) else "some not"


def worst_over(results, plain):
    """The most likely strategy over the best data parallelism that fits, where that is greatest."""
    over = {case: (steps["likely"][0] or math.inf) / plain[case]
            for case, steps in results.items() if plain[case] and "likely" in steps}
    if not over:
        return "-"
    case = max(over, key=over.get)
    return f"{over[case]:.2f} ({' '.join(map(str, case))})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "learning-table")
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    parser.add_argument("--set", action="append", default=[], help="KEY=VALUE of all variants")
    parser.add_argument("--improve", type=int, default=6000, help="plans of the first searches")
    given = parser.parse_args()
    known = json.loads(KNOWN.read_text())
    results = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain, even = {}, {}
        for case in CASES:
            plain[case] = data_parallelism(case, folder)
            even[case] = expect_costs(known, case, folder)
            for planner in ("portfolio", "annealing") if given.improve else ():
                step, _, _ = run(case, planner, ["--evaluations", given.improve], 17, folder)
                learn(known, case, step, f"{planner} --evaluations {given.improve}", even[case], True)
        for variant in ["no policy", *given.variants]:
            policy = None
            if variant != "no policy":
                policy = train(variant, VARIANTS[variant] | dict(one.split("=", 1) for one in given.set), given.out)
            results[variant] = {}
            for case in CASES:
                results[variant][case] = steps = judge(case, policy, folder)
                for step in sum(steps.values(), []):
                    learn(known, case, step, f"plan, {variant}", even[case], True)
            print(f"{variant}: judged", file=sys.stderr, flush=True)
    best = {case: known[" ".join(map(str, case))]["step_seconds"] for case in CASES}
    print(f"trained and planned on: {machine()}\n")
    print("longer than the best known step, and the worst case beside data parallelism")
    print(f"{'':20} {'likely alone':>13} {'plan, 100':>10} {'plan, 400':>10}  likely, worst")
    for variant, of_variant in results.items():
        cells = [mean_over(CASES, of_variant, column, best) for column in ("likely", 100, 400)]
        print(f"{variant:20} {cells[0]:>13} {cells[1]:>10} {cells[2]:>10}  "
              + worst_over(of_variant, plain))
    for variant in list(results)[:2]:
        print(f"\n{variant}, case by case, with the best known in seconds")
        for case in CASES:
            cells = [mean_over([case], results[variant], column, best)
                     for column in ("likely", 100, 400)]
            print(f"{' '.join(map(str, case)):36} {best[case]:8.4f}"
                  + "".join(f"{cell:>10}" for cell in cells))


if __name__ == "__main__":
    main()
