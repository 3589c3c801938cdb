"""Every planner on the zoo and six clusters: step, what fits, planning seconds, and the gap to the best.

    scripts/reproduce.sh every_planner [--part quick|all|budgets] [--models MODEL ...] [--clusters CLUSTER ...]
        [--threads 2] [--folder out/every_planner] [--program build/release/bin/heterog-planner]

`quick` is seven models on two clusters, about a quarter of an hour on one core; `all` is 21 models on six
clusters, at most two hours on two. Batches grow with the devices. Searches and learned placements simulate
200 plans each; what takes longer than a minute has no plan. `budgets` has these alone, on the seven models and
two clusters, with 100, 1,000 and 5,000 plans, ten minutes each at most. heterog-planner, which is built without
LibTorch, has no learned planners: they are left out with it. The folder keeps rows, and the same
command goes on from there.
Printed: a table of every model and cluster in milliseconds over the best known of that case, and for each
planner how often it fits, the median and the worst gap, and the median of its planning seconds.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median

from heterog_tables import PROGRAM, ROOT, machine

# Samples a device; those of the papers that have the model, as far as they say.
BATCHES = {
    "lenet5": 64, "alexnet": 64, "vgg19": 24, "resnet50": 32, "resnet152": 16, "resnet200": 16,
    "inception_v3": 24, "mobilenet_v2": 24, "nasnet_a_large": 16, "densenet121": 24, "transformer6": 64,
    "transformer12": 8, "transformer24": 8, "bert_large24": 4, "bert_large48": 2, "xlnet_large24": 4,
    "xlnet_large48": 2, "gnmt4": 32, "lstm_lm": 16, "ncf": 256, "tensor_holography": 4,
}  # fmt: skip
CLUSTERS = {"heterog-4gpu": 4, "heterog-8gpu": 8, "heterog-12gpu": 12, "fastt-4gpu": 4, "celeritas-4gpu": 4,
            "autosync-b7": 16}  # fmt: skip
QUICK = (["lenet5", "alexnet", "vgg19", "resnet50", "mobilenet_v2", "lstm_lm", "ncf"], ["heterog-4gpu", "fastt-4gpu"])
BUDGETS = (100, 1000, 5000)
PLAIN = ["ps-lb", "parallax", "accumulate", "gpipe", "pipedream", "hetpipe", "spp", "folded", "fastt-dpos", "fastt",
         "m-topo", "m-etf", "m-sct", "metis", "dfs-topo", "order-place", "celeritas", "portfolio", "policy"]  # fmt: skip
SEARCHES = ["random", "local-search", "annealing", "flexflow", "reinforce", "hrl", "post", "gdp"]
LEARNED = {"policy", "reinforce", "hrl", "post", "gdp"}


def compared(
    program: Path, cases: Path, rows: Path, threads: int, planners: list[str], *more: str, seconds_each: int = 60
) -> list[dict]:
    planners = [name for name in planners if program.name != "heterog-planner" or name not in LEARNED]
    command = [program, "compare", "--json", "--cases", cases, "--planner", *planners, "--seconds-each",
               str(seconds_each), "--threads", str(threads), "--out", rows, *more]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"heterog compare ended with {done.returncode}")
    return json.loads(done.stdout)["cases"]


def cases_text(models: list[str], clusters: list[str]) -> str:
    lines = [f"{ROOT}/models/{model}.json.gz {ROOT}/configs/clusters/{cluster}.json {BATCHES[model] * CLUSTERS[cluster]}"
             for model in models for cluster in clusters]  # fmt: skip
    return "\n".join(lines) + "\n"


def name_of(path: str) -> str:
    return Path(path).name.split(".")[0]


def print_tables(cases: list[dict]) -> None:
    names = [row["name"] for row in cases[0]["planners"]]
    gaps: dict[str, list[float]] = {name: [] for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    reasons: dict[str, str] = {}
    print(f"{'model (batch), cluster':40} {'best':>9}  by, and what the others take in its multiples (*: does not fit)")
    for case in cases:
        rows = {row["name"]: row for row in case["planners"]}
        fitting = [row for row in rows.values() if row["feasible"]]
        best = min(fitting, key=lambda row: row["step_seconds"]) if fitting else None
        where = f"{name_of(case['graph'])} ({case['batch']}), {name_of(case['cluster'])}"
        cells = []
        for name in names:
            row = rows[name]
            seconds[name].append(row["plan_seconds"])
            if row["step_seconds"] is None:
                reasons.setdefault(name, row["reason"])
                continue
            ratio = row["step_seconds"] / best["step_seconds"] if best else float("nan")
            if row["feasible"]:
                gaps[name].append(ratio)
            cells.append(f"{name} {ratio:.2f}{'' if row['feasible'] else '*'}")
        if best:
            print(f"{where:40} {1e3 * best['step_seconds']:9.1f}  {best['name']}; {', '.join(cells)}")
        else:
            print(f"{where:40} {'none fits':>9}")
    print(f"\n{'planner':16} {'fits':>9} {'median':>8} {'worst':>8} {'seconds':>8}")
    for name in sorted(names, key=lambda one: (median(gaps[one]) if gaps[one] else 1e9)):
        of = gaps[name]
        cells = f"{median(of):8.2f} {max(of):8.2f}" if of else f"{'-':>8} {'-':>8}"
        print(f"{name:16} {len(of):4}/{len(cases):<4} {cells} {median(seconds[name]):8.2f}")
    behind = [gap for gap in gaps["portfolio"] if gap > 1]
    print(f"portfolio has the shortest step in {len(gaps['portfolio']) - len(behind)} of {len(cases)} cases"
          + (f", and is at most {100 * (max(behind) - 1):.1f} % behind in the others" if behind else ""))  # fmt: skip
    for name, reason in reasons.items():
        print(f"{name}, where it has no plan: {reason}")


def print_budgets(program: Path, cases: Path, folder: Path, threads: int) -> None:
    """Each planner's step over the best that any found with any of the budgets: median and worst."""
    rows = [
        compared(program, cases, folder / f"budget_{budget}.jsonl", threads, SEARCHES, "--evaluations", str(budget),
                 seconds_each=600)
        for budget in BUDGETS
    ]  # fmt: skip
    found = [[{row["name"]: row for row in case["planners"]} for case in of] for of in rows]
    best = [
        min(row["step_seconds"] for of in found for row in of[case].values() if row["feasible"])
        for case in range(len(found[0]))
    ]
    print(f"step over the best of all these, median and worst of {len(best)} cases\n")
    print(f"{'planner':16} " + " ".join(f"{f'{budget} plans':>20}" for budget in BUDGETS))
    for name in ("baselines", *SEARCHES):
        cells = []
        for of in found:
            ratios = []
            for steps, least in zip(of, best):
                asked = [row for row in steps.values() if row["name"] == name or (name == "baselines" and row["baseline"])]
                own = [row["step_seconds"] for row in asked if row["feasible"]]
                if own:
                    ratios.append(min(own) / least)
            missing = len(best) - len(ratios)
            cells.append(f"{median(ratios):.2f} {max(ratios):6.2f}{f' (-{missing})' if missing else ''}" if ratios else "-")
        print(f"{name:16} " + " ".join(f"{cell:>20}" for cell in cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=["quick", "all", "budgets"], default="all")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("out/every_planner"))
    parser.add_argument("--program", type=Path, default=PROGRAM)
    parser.add_argument("--models", nargs="+", choices=BATCHES, help="in place of the part's")
    parser.add_argument("--clusters", nargs="+", choices=CLUSTERS, help="in place of the part's")
    options = parser.parse_args()
    if not options.program.is_file():
        parser.error(f"--program: {options.program} is no file")
    options.folder.mkdir(parents=True, exist_ok=True)
    models, clusters = list(BATCHES), list(CLUSTERS)
    if options.part != "all":
        models, clusters = QUICK
    models, clusters = options.models or models, options.clusters or clusters
    cases = options.folder / f"{options.part}.txt"
    cases.write_text(cases_text(models, clusters))
    if options.part == "budgets":
        print(f"simulated; planned on: {machine()}")
        print_budgets(options.program, cases, options.folder, options.threads)
        return
    found = compared(options.program, cases, options.folder / "plain.jsonl", options.threads, PLAIN)
    more = compared(options.program, cases, options.folder / "searches.jsonl", options.threads, SEARCHES, "--evaluations", "200")
    for one, other in zip(found, more, strict=True):
        one["planners"] += [row for row in other["planners"] if not row["baseline"]]
    print(f"milliseconds a step, simulated; planned on: {machine()}")
    print_tables(found)


if __name__ == "__main__":
    main()
