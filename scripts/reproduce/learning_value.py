"""What the policy and each search are worth: every planner at equal budgets, against the best plan known.

    scripts/reproduce.sh learning_value [--set small|models|clusters|unseen|workstation] [--evaluations N ...]
        [--seconds S ...] [--planners NAME ...] [--seeds K] [--improve SECONDS] [--policy FILE]

Prints, for each case and budget, how much longer each planner's step is than the best known, in
per cent; the mean over seeds. best_known.json beside this file holds the best that any run has
found so far, with its planner; it is only ever improved, but begun anew for a case whose plain
data parallelism takes another time than then: costs or simulator have changed. "likely" is the
policy's most likely strategy, or one row of its table where that is faster, "best-dp" the best of even and
proportional replicas, both in the rows of one shot only. --improve plans every case for so many
seconds first, by every search, to find better ones. With --check nothing is written, and it ends with
exit code 1 if `plan` is more than 5 % above the best known in any case. HETEROG_BIN names another
program than that of the release preset, --request NAME=PLANNER another planner for a name. Models of
the set "unseen", and Llama, are no part of the zoo, so that no policy was taught on them; they are
exported first.
"""

import argparse
import fcntl
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = os.environ.get("HETEROG_BIN") or ROOT / "build" / "release" / "bin" / "heterog"
KNOWN = Path(__file__).with_name("best_known.json")
NOTHING = {"step_seconds": 1e30}
# `plan`, then its parts, and the policy.
PLANNERS = {
    "plan": ["portfolio"],
    "annealing": ["annealing"],
    "local-search": ["local-search:patience=0"],
    "random": ["random"],
    "policy": ["policy"],
    "likely": ["policy:answer=likely"],
    # Data parallelism: the best of these, each in its best order.
    "best-dp": ["ev-ps", "ev-ar", "cp-ps", "cp-ar", "horovod"],
}
ONE_SHOT = ["plan", "likely", "best-dp"]  # what a row without budget has
ONLY_ONE_SHOT = ["likely", "best-dp"]
WITH_POLICY = {"policy", "likely"}  # which take a checkpoint
HETEROG = [("vgg19", 192), ("resnet200", 192), ("inception_v3", 192), ("mobilenet_v2", 192),
           ("nasnet_a_large", 192), ("transformer6", 720), ("bert_large24", 48),
           ("xlnet_large24", 48)]  # fmt: skip
UNSEEN = {"gpt-2_124m": ("GPT-2 124M", 32), "vit-b16": ("ViT-B/16", 128), "swin-t": ("Swin-T", 128),
          "t5_small": ("T5 small", 64)}  # fmt: skip
# Exported too, but in sets of their own.
EXPORTED = UNSEEN | {"llama_1.1b": ("Llama 1.1B", 8)}
OTHERS = [("gnmt4", 256), ("alexnet", 512), ("densenet121", 256), ("ncf", 16384)]
SETS = {
    "small": [("vgg19-tiny", 16, "heterog-8gpu"), ("mobilenet_v2-tiny", 16, "heterog-8gpu"),
              ("densenet121-tiny", 16, "office-mixed")],
    "models": [(model, batch, "heterog-8gpu") for model, batch in HETEROG + OTHERS],
    "unseen": [(model, batch, cluster) for model, (_, batch) in UNSEEN.items()
               for cluster in ("heterog-8gpu", "office-mixed")],
    "workstation": [("vgg19", 192, "workstation-3090-4090"),
                    ("bert_large24", 48, "workstation-3090-4090"),
                    ("llama_1.1b", 8, "workstation-3090-4090"), ("llama_1.1b", 64, "dgx-h100-mixed")],
    "clusters": [(model, batch * scale, cluster)
                 for cluster, scale in (("heterog-8gpu-10gbe", 1), ("office-mixed", 1),
                                        ("dgx-h100-mixed", 4), ("mixed-64gpu", 16),
                                        ("mixed-512gpu", 128))
                 for model, batch in (("vgg19", 192), ("resnet50", 192), ("bert_large24", 48))],
}  # fmt: skip


def graph_of(model):
    if model not in EXPORTED:
        return ROOT / f"models/{model}.json.gz"
    folder = ROOT / "out" / "unseen"
    graph = folder / f"{model}.json.gz"
    if not graph.is_file():
        subprocess.run([sys.executable, ROOT / "scripts/coverage/real_sizes.py", EXPORTED[model][0],
                        "--save", folder], check=True, stdout=subprocess.DEVNULL,
                       env=os.environ | {"PYTHONPATH": str(ROOT / "python")})  # fmt: skip
    return graph


def cluster_of(cluster):
    """Those of the wide set (wide.py) are written where they are asked for."""
    shipped = ROOT / f"configs/clusters/{cluster}.json"
    return shipped if shipped.is_file() else ROOT / f"out/wide/{cluster}.json"


def plan(case, planner, budget, seed, folder, policy=None):
    """Step in seconds, none if nothing fits; evaluations; seconds of planning."""
    found = []
    for request in PLANNERS[planner]:
        if policy and planner in WITH_POLICY:
            request += ("," if ":" in request else ":") + f"checkpoint={policy}"
        found.append(run(case, request, budget, seed, folder))
    fitting = [one for one in found if one[0] is not None]
    return min(fitting or found[:1])


def run(case, request, budget, seed, folder, fits=True):
    model, batch, cluster = case
    command = [PROGRAM, "plan", "--graph", graph_of(model),
               "--cluster", cluster_of(cluster), "--batch", batch,
               "--planner", request, *budget, "--seed", seed, "--json",
               "--out", folder / "plan.json", "--log-level", "error"]  # fmt: skip
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    if done.returncode == 3 and fits:
        return None, 0, 0
    if done.returncode not in (0, 3):
        sys.exit(f"{model}, batch {batch}, {cluster}: heterog plan ended with {done.returncode}")
    said = json.loads(done.stdout)
    return said["step_seconds"], said["evaluations"], said["plan_seconds"]


def expect_costs(known, case, folder):
    """Forgets what is known of a case whose costs are not those of now."""
    key = " ".join(map(str, case))
    plain, _, _ = run(case, "ev-ar:order=rank", [], 0, folder, fits=False)
    if key in known and known[key].get("ev_ar_seconds") != plain:
        del known[key]
    return plain


def learn(known, case, step, planner, plain, write):
    """Two scripts may learn at the same time: what the other has found of this case is not lost."""
    key = " ".join(map(str, case))
    if not write or step is None or step >= known.get(key, NOTHING)["step_seconds"]:
        return
    with open(__file__) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        written = json.loads(KNOWN.read_text()) if KNOWN.is_file() else {}
        known[key] = {"step_seconds": step, "planner": planner, "ev_ar_seconds": plain}
        found = written.get(key, NOTHING)
        if found.get("ev_ar_seconds") == plain and found["step_seconds"] <= step:
            known[key] = found
            return
        written[key] = known[key]
        new = KNOWN.with_suffix(".new")
        new.write_text(json.dumps(dict(sorted(written.items())), indent=1) + "\n")
        new.replace(KNOWN)


def above(steps, best):
    fitting = [step for step in steps if step is not None]
    if len(fitting) < len(steps):
        return "OOM"
    return f"{100 * (mean(fitting) / best - 1):+.1f}"


def machine():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return "unknown processor"


def print_case(case, rows, known, planners):
    """The greatest part by which `plan` is above the best known."""
    best = known.get(" ".join(map(str, case)), {"step_seconds": None})["step_seconds"]
    title = f"{case[0]} ({case[1]}), {case[2]}"
    if best is None:
        print(f"{title:<42} nothing fits", flush=True)
        return 0
    worst = 0
    for budget, of_planner in rows:
        cells = [above(of_planner[name], best) if name in of_planner else "" for name in planners]
        print(f"{title:<42} {best:8.4f}  {budget:<20}" + "".join(f"{cell:>13}" for cell in cells),
              flush=True)
        if "plan" in of_planner and None not in of_planner["plan"]:
            worst = max(worst, mean(of_planner["plan"]) / best - 1)
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--set", nargs="+", default=["models"], choices=SETS)
    parser.add_argument("--cases", nargs="+", default=[], help="of the set, those with these models")
    parser.add_argument("--evaluations", nargs="*", type=int, default=[400, 2000])
    parser.add_argument("--seconds", nargs="*", type=float, default=[])
    parser.add_argument("--planners", nargs="+", default=list(PLANNERS), choices=PLANNERS)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--improve", type=float, default=0)
    parser.add_argument("--policy", type=Path, help="in place of the shipped one")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--request", nargs="*", default=[], help="NAME=PLANNER")
    given = parser.parse_args()
    PLANNERS.update({name: [planner] for name, planner in
                     (request.split("=", 1) for request in given.request)})
    known = json.loads(KNOWN.read_text()) if KNOWN.is_file() else {}
    cases = [case for name in given.set for case in SETS[name]
             if not given.cases or case[0] in given.cases]
    budgets = [["--evaluations", n] for n in given.evaluations]
    budgets += [["--budget", s] for s in given.seconds]
    worst = 0
    print(f"{machine()}, release preset; {given.seeds} seed(s)")
    print("step above the best known when the case ended, per cent")
    print(f"{'model (batch), cluster':<42} {'best s':>8}  {'budget':<20}"
          + "".join(f"{name:>13}" for name in given.planners), flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for case in cases if given.improve else []:
            for planner in ("plan", "annealing"):
                plain = expect_costs(known, case, folder)
                step, _, _ = plan(case, planner, ["--budget", given.improve], 17, folder)
                learn(known, case, step, f"{planner}, {given.improve:g} s", plain, not given.check)
        for case in cases:
            rows = []
            plain = expect_costs(known, case, folder)
            if given.check and " ".join(map(str, case)) not in known:
                sys.exit(f"{case}: nothing is known of it at the costs of now; "
                         "run without --check and commit best_known.json")
            for budget in [[], *budgets]:
                of_planner, took = {}, []
                for planner in given.planners:
                    if planner in ONLY_ONE_SHOT if budget else planner not in ONE_SHOT:
                        continue
                    runs = [plan(case, planner, budget, seed, folder, given.policy)
                            for seed in range(given.seeds)]
                    of_planner[planner] = [step for step, _, _ in runs]
                    took.append(mean(seconds for _, _, seconds in runs))
                    for step, _, _ in runs:
                        learn(known, case, step, " ".join([planner, *map(str, budget)]), plain,
                              not given.check)
                if of_planner:
                    said = " ".join(map(str, budget)) or f"one shot, {took[0]:.1f} s"
                    rows.append((said, of_planner))
            worst = max(worst, print_case(case, rows, known, given.planners))
    if given.check and worst > 0.05:
        sys.exit(f"plan is {100 * worst:.1f} % above the best known; at most 5 % is asked for")


if __name__ == "__main__":
    main()
