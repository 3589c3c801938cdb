"""HeteroG's Table 6: how much sooner a policy that was taught on other models fine-tunes to a good plan.

    scripts/reproduce.sh table6 [--evaluations N] [--set KEY=VALUE] [--seeds K] [--cases MODEL ...]
        [--clusters NAME ...] [--random-cases N] [--steps N] [--one-by-one]
        [--out FOLDER]

Trains a policy by configs/train/zoo.json on the models of the zoo but the paper's eight, all of them
left out at once; with --one-by-one eight policies, each without one model. Then fine-tunes it, and the
same network with the weights that it began with ("scratch"), on each of these models, both with the
same settings. Prints seconds a step of the best known plan (best_known.json where it has the case,
else of these runs and the one-shot plan), of the best plain data parallelism, and of what both runs
end with; the simulated plans ("evaluations") until the best so far is within 1 % of scratch's end, and
their ratio beside the paper's of minutes; those until within 2 % of the best known. Every run begins
with the plain strategies and what its policy proposes, which count. What was trained is kept in FOLDER for later calls.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean

from heterog_tables import ROOT, TABLES, machine
from learning_value import KNOWN, PROGRAM, expect_costs, run

CONFIG = ROOT / "configs" / "train" / "zoo.json"
CASES = [(model, batch, cluster) for cluster, rows in TABLES.values()
         for model, batch, _, *baselines in rows if None not in baselines]  # fmt: skip
MODELS = list(dict.fromkeys(model for model, _, _ in CASES))

# Minutes in the paper, from scratch and on the pretrained model: 8 GPUs, then 12.
PAPER = {
    "vgg19": ((82.5, 21.2), (113.4, 25.3)),
    "resnet200": ((174.7, 27.3), (201.3, 30.7)),
    "inception_v3": ((112.6, 25.1), (141.5, 29.4)),
    "mobilenet_v2": ((105.2, 26.5), (144.6, 29.8)),
    "nasnet_a_large": ((154.9, 33.4), (191.4, 40.7)),
    "transformer6": ((143.2, 36.9), (178.8, 41.4)),
    "bert_large24": ((196.1, 45.1), (243.9, 48.7)),
    "xlnet_large24": ((211.7, 41.4), (245.3, 46.5)),
}  # fmt: skip


def train(folder, settings):
    """Path of the policy; goes on where an earlier call stopped."""
    words = []
    for key, value in settings.items():
        words += ["--set", f"{key}={json.dumps(value)}"]
    command = [PROGRAM, "train", "--config", CONFIG, "--out", folder, "--resume", *words,
               "--log-level", "error"]  # fmt: skip
    subprocess.run([str(word) for word in command], stdout=subprocess.DEVNULL, check=True)
    return folder / "policy.ckpt"


def taught(given):
    """The policy that each model meets, and scratch's. A rate of next to nothing leaves weights as
    they are at the start."""
    settings = {"random_cases": given.random_cases, "random_devices": given.random_devices,
                "steps": given.steps}
    scratch = train(given.out / "scratch", {"random_cases": 4, "cases_per_step": 4, "steps": 1,
                                            "learning_rate": 1e-9})
    if not given.one_by_one:
        policy = train(given.out / "taught", {**settings, "leave_out": MODELS})
        return dict.fromkeys(MODELS, policy), scratch
    return {model: train(given.out / f"without-{model}", {**settings, "leave_out": [model]})
            for model in MODELS}, scratch


def curve(case, policy, seed, given, folder):
    """Best data parallelism in seconds; (evaluations, best so far in seconds) after every step."""
    model, batch, cluster = case
    command = [PROGRAM, "finetune", "--policy", policy, "--graph", ROOT / f"models/{model}.json.gz",
               "--cluster", ROOT / f"configs/clusters/{cluster}.json", "--batch", batch,
               "--evaluations", given.evaluations, "--seed", seed, "--out", folder / "tuned.ckpt",
               "--log", folder / "tuned.log", "--json", "--log-level", "error"]  # fmt: skip
    command += [word for setting in given.set for word in ("--set", setting)]
    subprocess.run([str(word) for word in command], stdout=subprocess.DEVNULL, check=True)
    rows = [json.loads(line) for line in (folder / "tuned.log").read_text().splitlines()]
    points = [(row["evaluations"], row["cases"][0]["best_step_seconds"] or math.inf) for row in rows]
    return rows[0]["cases"][0]["baseline_step_seconds"], points


def until(points, seconds):
    return next((evaluations for evaluations, best in points if best <= seconds), None)


def count(evaluations):
    return "-" if None in evaluations else f"{mean(evaluations):,.0f}"


def print_case(case, runs, plain, best):
    """Ratio of evaluations: none where scratch finds nothing, or the pretrained policy less."""
    scratch, pretrained = runs["scratch"], runs["pretrained"]
    goals = [points[-1][1] * 1.01 for points in scratch]
    sooner = {who: [until(points, goal) for points, goal in zip(runs[who], goals, strict=True)]
              for who in runs}  # fmt: skip
    near = {who: [until(points, best * 1.02) for points in runs[who]] for who in runs}
    ends = {who: mean(points[-1][1] for points in runs[who]) for who in runs}
    learnt = all(goal < points[0][1] for goal, points in zip(goals, scratch, strict=True))
    ratio = None
    if learnt and None not in sooner["pretrained"]:
        ratio = 100 * sum(sooner["pretrained"]) / sum(sooner["scratch"])
    minutes = PAPER[case[0]][case[2] == TABLES[4][0]]
    title = f"{case[0]} ({case[1]}), {case[2]}"
    print(f"{title:36}{best:8.4f}{plain:8.4f}{ends['scratch']:9.4f}{ends['pretrained']:11.4f}"
          f"{count(sooner['scratch']) if learnt else 'nothing':>9}"
          f"{count(sooner['pretrained']) if learnt else '':>11}"
          + (f"{ratio:7.0f} %" if ratio is not None else f"{'-':>9}")
          + f"{100 * minutes[1] / minutes[0]:7.1f} %{count(near['scratch']):>9}"
          + f"{count(near['pretrained']):>11}", flush=True)
    return ratio, learnt, ends["pretrained"] < ends["scratch"] / 1.01


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evaluations", type=int, default=2000, help="of each run")
    parser.add_argument("--set", action="append", default=[], help="of finetune")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--cases", nargs="+", default=MODELS, choices=MODELS)
    parser.add_argument("--clusters", nargs="+", default=[TABLES[1][0], TABLES[4][0]])
    parser.add_argument("--random-cases", type=int, default=150, help="problems that are drawn")
    parser.add_argument("--random-devices", type=int, default=16, help="of the largest of them")
    parser.add_argument("--steps", type=int, default=600, help="of training")
    parser.add_argument("--one-by-one", action="store_true", help="eight policies")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "table6")
    given = parser.parse_args()

    policies, scratch = taught(given)
    log = (policies[MODELS[0]].parent / "train.log").read_text().splitlines()
    problems = {case["case"] for line in log for case in json.loads(line)["cases"]}
    print(f"HeteroG Table 6; trained and tuned on: {machine()}\n"
          f"{'each model' if given.one_by_one else 'the eight models'} left out: {len(log):,} steps on "
          f"{len(problems)} problems of others\n"
          f"fine-tuning{''.join(' with ' + one for one in given.set)}, {given.evaluations:,} evaluations, "
          f"{given.seeds} seed(s)\n")
    print(f"{'':36}{'seconds a step':^36}{'evaluations to scratch, + 1 %':^38}"
          f"{'to the best + 2 %':>20}")
    print(f"{'model (batch), cluster':36}{'best':>8}{'plain':>8}{'scratch':>9}{'pretrained':>11}"
          f"{'scratch':>9}{'pretrained':>11}{'ratio':>9}{'paper':>9}{'scratch':>9}{'pretrained':>11}",
          flush=True)  # fmt: skip
    known = json.loads(KNOWN.read_text())
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for case in CASES:
            if case[0] not in given.cases or case[2] not in given.clusters:
                continue
            runs = {}
            for who, policy in (("scratch", scratch), ("pretrained", policies[case[0]])):
                curves = [curve(case, policy, seed, given, folder)
                          for seed in range(given.seeds)]
                runs[who] = [points for _, points in curves]
            expect_costs(known, case, folder)
            best = known.get(" ".join(map(str, case)), {}).get("step_seconds")
            if best is None:
                plan, _, _ = run(case, "portfolio", [], 0, folder)
                best = min([plan, *(points[-1][1] for who in runs.values() for points in who)])
            found.append(print_case(case, runs, curves[0][0], best))
    ratios = sorted(ratio for ratio, _, _ in found if ratio is not None)
    print(f"\nscratch finds something better than what it begins with in {sum(one[1] for one in found)} "
          f"of {len(found)} cases; pretrained gets as far in {len(ratios)} of them"
          + (f", after {ratios[0]:.0f} to {ratios[-1]:.0f} % of the evaluations" if ratios else "")
          + f"; it ends more than 1 % below scratch in {sum(one[2] for one in found)} cases")


if __name__ == "__main__":
    sys.exit(main())
