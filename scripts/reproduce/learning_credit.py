"""How fine-tuning gives credit and explores: one change at a time.

    scripts/reproduce.sh learning_credit [--evaluations 2000] [--seeds 5] [--variants NAME ...]
        [--models NAME ...]

Fine-tunes the shipped policy on BERT-large and VGG-19 on 8 GPUs, so many plans each, from every seed,
with one setting changed at a time. Prints of each, as means over the seeds: how much longer the best plan is than the
best known step (best_known.json), with the worst seed in parentheses; the same of the strategy that
is the most likely in the end; the mean of the last step's strategies beside that one; the entropy in
the end, nats a group. "none": in some seed the most likely strategy does not fit.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from heterog_tables import ROOT, machine
from learning_value import KNOWN, PROGRAM

CASES = [("bert_large24", 48, "heterog-8gpu"), ("vgg19", 192, "heterog-8gpu")]
VARIANTS = {
    "as it is": {},
    "no floor": {"finetune_entropy_floor": 0},
    "floor of 0.3": {"finetune_entropy_floor": 0.3},
    "no imitation, no floor": {"elite_weight": 0, "finetune_entropy_floor": 0},
    "no imitation, floor of 0.5": {"elite_weight": 0, "finetune_entropy_floor": 0.5},
}


def finetune(case, settings, seed, evaluations, folder):
    """What the command says of its run."""
    model, batch, cluster = case
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    out = Path(folder) / f"{model}-{seed}-{abs(hash(str(settings)))}.ckpt"
    printed = subprocess.run(
        [str(PROGRAM), "finetune", "--graph", f"models/{model}.json.gz", "--cluster",
         f"configs/clusters/{cluster}.json", "--batch", str(batch), "--evaluations", str(evaluations),
         "--seed", str(seed), "--threads", "1", "--json", "--out", str(out), *words],
        cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True,
    ).stdout  # fmt: skip
    out.unlink()
    return json.loads(printed)


def over(steps, best):
    """Per cent over the best known: the mean, and the worst."""
    longer = [100 * (step / best - 1) for step in steps]
    return f"{statistics.mean(longer):+.1f} ({max(longer):+.1f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--evaluations", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    parser.add_argument("--models", nargs="+", default=[case[0] for case in CASES])
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    known = json.loads(KNOWN.read_text())
    cases = [case for case in CASES if case[0] in given.models]
    print(f"fine-tuned on: {machine()}; {given.evaluations} plans, {given.seeds} seed(s)\n")
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.jobs) as jobs:
        runs = {
            (case, variant): [
                jobs.submit(finetune, case, VARIANTS[variant], seed, given.evaluations, folder)
                for seed in range(given.seeds)
            ]
            for case in cases
            for variant in given.variants
        }
        for case in cases:
            best = known[" ".join(map(str, case))]["step_seconds"]
            print(f"{' '.join(map(str, case))}, best known {best:.4f} s")
            print(f"{'':28} {'best found, %':>16} {'most likely, %':>18} {'mean / likely':>14}"
                  f" {'entropy':>8}")
            for variant in given.variants:
                said = [run.result() for run in runs[case, variant]]
                likely = "none"
                if all(one["likely_feasible"] for one in said):
                    likely = over([one["likely_step_seconds"] for one in said], best)
                ratio, entropy = (
                    statistics.mean(values)
                    for values in (
                        [one["mean_step_seconds"] / one["likely_step_seconds"] for one in said],
                        [one["entropy_nats"] for one in said],
                    )
                )
                print(f"{variant:28} {over([one['best_step_seconds'] for one in said], best):>16}"
                      f" {likely:>18} {ratio:14.2f} {entropy:8.2f}", flush=True)
            print(flush=True)


if __name__ == "__main__":
    main()
