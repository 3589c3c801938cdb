"""AutoSync: how well its rankers rank, and what its search finds (docs/results/autosync.md).

    scripts/reproduce.sh autosync [--strategies 200] [--seeds 3] [--preset release]
        [--tables rankings steps worth cases] [--threads 2] [--folder out/autosync]

A domain is a model on a cluster, of which random strategies are drawn and simulated (`heterog autosync-data`).
The first table is the part of all pairs of held-out strategies that a ranker puts in the right order: the
paper's equations 1 to 3, a linear model, an LSTM over the variables in the order of the backward pass, and
graph attention between neighbours in that order. They learn by a pairwise ranking loss, with Adam, 1e-3,
times 0.3 at epochs 80 and 160 of 200, gradients clipped at 0.25; 70 % of the strategies are learnt from, 15 %
choose the epoch, 15 % are held out. Long models are read in 64 parts. On a domain never seen: learnt on all
others, times divided by the time that the domain computes.

`steps` is the best of 200 trials by the planner `autosync`, and what else there is. `worth` is how many trials
what ranks candidates saves: nothing, the formulas, a linear model that learns from the trials, and one that was
taught on another model before (`predictor=`) and learns on.

`cases` are 12 models on the 14 clusters of the paper: the best of 200 trials over the best that is fixed
(all-reduce, tuned Horovod, parameter servers, balanced, partitioned, Parallax), and `plan` over that. Models
that models/ does not hold are exported once, to the folder, which keeps rows too: the same command goes on
from there.
"""

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import torch
from every_planner import compared, name_of
from heterog_tables import ROOT, machine
from torch import nn

DOMAINS = [("vgg19", 512, "autosync-b7"), ("vgg19", 256, "autosync-b1"), ("vgg19", 512, "autosync-b11"),
           ("resnet50", 512, "autosync-b7"), ("bert_large24", 64, "autosync-b1"),
           ("transformer6", 720, "autosync-b7")]  # fmt: skip
OTHERS = ["ev-ar", "horovod:bucket_bytes=tuned", "ev-ps", "ps-lb", "partitioned-ps", "parallax", "portfolio", "autosync"]
CURVE = [20, 60, 200]
# Samples a GPU, as the paper has them; its Transformer has 5,000 tokens.
MODELS = {"resnet50": 32, "resnet101": 32, "inception_v3": 32, "vgg16": 32, "densenet121": 32, "bert3": 32, "bert6": 32,
          "bert_base12": 32, "bert_large24": 8, "ncf": 256, "transformer6": 45, "gnmt4": 32}  # fmt: skip
CLUSTERS = {"a1": 16, "a2": 11, "b1": 8, "b2": 12, "b3": 16, "b4": 4, "b5": 8, "b6": 12, "b7": 16, "b8": 32, "b9": 5,
            "b10": 8, "b11": 16, "b12": 5}  # fmt: skip
FIXED = OTHERS[:6]
PARTS = 64
RANKERS = ["linear", "lstm", "gat"]
TABLES = ["rankings", "steps", "worth", "cases"]


def run(*words) -> str:
    words = [str(word) for word in words]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode not in (0, 3):
        sys.exit(f"{' '.join(words)} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def problem(model, batch, cluster):
    return ["--graph", ROOT / f"models/{model}.json.gz", "--cluster", ROOT / f"configs/clusters/{cluster}.json",
            "--batch", batch]  # fmt: skip


class Domain:
    """Strategies of one model on one cluster: features [n, 16], variables [n, parts, 9], steps, formula."""

    def __init__(self, program, case, strategies):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "data.jsonl"
            run(program, "autosync-data", *problem(*case), "--count", strategies, "--out", file)
            head, *rows = [json.loads(line) for line in file.read_text().splitlines()]
        self.case = case
        self.features = torch.tensor([row["features"] for row in rows])
        self.steps = torch.tensor([row["step_seconds"] for row in rows])
        self.formula = torch.tensor([row["formula_seconds"] for row in rows])
        variables = torch.tensor([row["variables"] for row in rows])
        parts = min(PARTS, variables.shape[1])
        self.variables = torch.stack([part.mean(1) for part in variables.tensor_split(parts, 1)], 1)
        # Times in parts of the time that the domain computes, so that domains can be learnt together.
        computes = self.features[0, head["features"].index("computation")]
        seconds = [i for i, name in enumerate(head["features"]) if name not in ("queued ranks", "fifo", "parts")]
        self.relative = self.features.clone()
        self.relative[:, seconds] /= computes
        self.relative_variables = self.variables.clone()
        self.relative_variables[..., :3] *= self.variables.shape[1] / computes
        self.relative_variables[..., 3] = torch.log1p(self.variables[..., 3])
        self.relative_variables[..., 7:] = torch.log1p(self.variables[..., 7:])


class Linear(nn.Module):
    def __init__(self, features, _):
        super().__init__()
        self.out = nn.Linear(features, 1, bias=False)
        nn.init.zeros_(self.out.weight)

    def forward(self, features, _):
        return self.out(features).squeeze(-1)


class Lstm(nn.Module):
    """Equations 4 to 7: both ways over the variables; what a plan decides as a whole beside them."""

    def __init__(self, features, variables, hidden=32):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(variables, hidden), nn.ReLU())
        self.lstm = nn.LSTM(hidden, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Sequential(nn.Linear(2 * hidden + features, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, features, variables):
        _, (last, _) = self.lstm(self.first(variables))
        return self.out(torch.cat([last[0], last[1], features], 1)).squeeze(-1)


class Gat(nn.Module):
    """Equations 8 to 10: attention of each variable over itself and its neighbours, twice, then the mean."""

    def __init__(self, features, variables, hidden=32):
        super().__init__()
        self.first = nn.Linear(variables, hidden)
        self.layers = nn.ModuleList(nn.ModuleDict({"value": nn.Linear(hidden, hidden), "own": nn.Linear(hidden, 4),
                                                   "other": nn.Linear(hidden, 4)}) for _ in range(2))  # fmt: skip
        self.out = nn.Sequential(nn.Linear(hidden + features, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, features, variables):
        state = torch.relu(self.first(variables))
        for layer in self.layers:
            value, own, other = layer["value"](state), layer["own"](state), layer["other"](state)
            def around(x):
                return torch.stack([x, x.roll(1, 1), x.roll(-1, 1)], 2)  # fmt: skip
            weights = torch.softmax(nn.functional.leaky_relu(own.unsqueeze(2) + around(other), 0.2), 2)
            heads = around(value).unflatten(-1, (4, -1))
            state = state + torch.relu((weights.unsqueeze(-1) * heads).sum(2).flatten(-2))
        return self.out(torch.cat([state.mean(1), features], 1)).squeeze(-1)


def accuracy(scores, steps):
    more = steps[:, None] > steps[None, :]
    right = (scores[:, None] > scores[None, :]).float() + 0.5 * (scores[:, None] == scores[None, :]).float()
    return (right * more).sum().item() / max(more.sum().item(), 1)


def learn(kind, sets, valid, seed):
    """A ranker of (features, variables, steps) of several domains: pairs are of one domain."""
    torch.manual_seed(seed)
    together = [torch.cat([one[i].flatten(0, -2) for one in sets]) for i in (0, 1)]
    means = [rows.mean(0) for rows in together]
    deviations = [rows.std(0) for rows in together]
    scales = [torch.where(d > 1e-9, 1 / d, torch.zeros_like(d)) for d in deviations]

    def scaled(one):
        return [(one[i] - means[i]) * scales[i] for i in (0, 1)]

    model = {"linear": Linear, "lstm": Lstm, "gat": Gat}[kind](together[0].shape[1], together[1].shape[1])
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [80, 160], 0.3)
    inputs = [(scaled(one), one[2]) for one in sets]
    best, kept = -1.0, None
    for _ in range(200):
        for (features, variables), steps in inputs:
            for rows in torch.randperm(len(steps)).split(32):
                scores, own = model(features[rows], variables[rows]), steps[rows]
                more = own[:, None] > own[None, :]
                loss = nn.functional.softplus(scores[None, :] - scores[:, None])[more].mean()
                if not loss.isfinite():  # no pair of different steps
                    continue
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.25)
                optimizer.step()
        schedule.step()
        with torch.no_grad():
            now = sum(accuracy(model(*scaled(one)), one[2]) for one in valid) / len(valid)
        if now > best:
            best, kept = now, {k: v.clone() for k, v in model.state_dict().items()}
    model.load_state_dict(kept)

    def score(one):
        with torch.no_grad():
            return model(*scaled(one))
    return score  # fmt: skip


def split(domain, seed, relative=False):
    order = torch.randperm(len(domain.steps), generator=torch.Generator().manual_seed(seed))
    data = (domain.relative, domain.relative_variables) if relative else (domain.features, domain.relative_variables)
    cuts = [0, int(0.7 * len(order)), int(0.85 * len(order)), len(order)]
    return [tuple(x[order[a:b]] for x in (*data, domain.steps, domain.formula)) for a, b in zip(cuts, cuts[1:])]


def rankings(domains, seeds):
    print("\nPairs of held-out strategies in the right order, %; never seen: learnt on the other domains")
    print(f"{'domain':32}{'chance':>8}{'eq. 1-3':>9}" + "".join(f"{kind:>9}" for kind in RANKERS)
          + "".join(f"{kind + ', never seen':>22}" for kind in RANKERS))  # fmt: skip
    sums = {}
    for i, domain in enumerate(domains):
        found = {}
        for seed in range(seeds):
            taught, valid, held = split(domain, seed)
            found.setdefault("formula", []).append(accuracy(held[3], held[2]))
            for kind in RANKERS:
                found.setdefault(kind, []).append(accuracy(learn(kind, [taught], [valid], seed)(held), held[2]))
            others = [split(other, seed, True) for j, other in enumerate(domains) if j != i]
            unseen = split(domain, seed, True)[2]
            for kind in RANKERS:
                ranker = learn(kind, [one[0] for one in others], [one[1] for one in others], seed)
                found.setdefault("unseen " + kind, []).append(accuracy(ranker(unseen), unseen[2]))
        means = {name: sum(values) / len(values) for name, values in found.items()}
        for name, value in means.items():
            sums.setdefault(name, []).append(value)
        print_row(" ".join(map(str, domain.case)), means)
    print_row("mean", {name: sum(values) / len(values) for name, values in sums.items()})


def print_row(name, means):
    print(f"{name:32}{50:8.1f}{100 * means['formula']:9.1f}"
          + "".join(f"{100 * means[kind]:9.1f}" for kind in RANKERS)
          + "".join(f"{100 * means['unseen ' + kind]:22.1f}" for kind in RANKERS), flush=True)  # fmt: skip


def steps(program):
    print("\nMilliseconds of a step; autosync: the best of 200 trials; *: does not fit in memory")
    print(f"{'domain':32}" + "".join(f"{name.split(':')[0]:>16}" for name in OTHERS))
    for case in DOMAINS:
        rows = json.loads(run(program, "compare", *problem(*case), "--planner", *OTHERS, "--json"))["planners"]
        by_name = {row["name"]: f"{1000 * row['step_seconds']:.1f}{' ' if row['feasible'] else '*'}" for row in rows}
        print(f"{' '.join(map(str, case)):32}" + "".join(f"{by_name[name]:>16}" for name in OTHERS), flush=True)


def trials_of(program, case, ranker, seed):
    """[(trials, best step so far in ms)], in rounds of five; empty: none fits."""
    with tempfile.TemporaryDirectory() as folder:
        words = [program, "plan", *problem(*case), "--planner", f"autosync:round=5,{ranker}", "--seed", seed,
                 "--out", Path(folder) / "plan.json", "--log-level", "debug"]  # fmt: skip
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode not in (0, 3):
        sys.exit(f"{' '.join(map(str, words))} ended with {done.returncode}: {done.stderr[-2000:]}")
    found, best = [], math.inf
    if done.returncode == 3:
        return found
    for count, seconds in re.findall(r"(\d+) evaluations: ([0-9.]+) s is the best", done.stderr):
        if found and int(count) < found[-1][0]:  # of the baselines, which are looked at afterwards
            break
        best = min(best, 1000 * float(seconds))
        found.append((int(count), best))
    return found


def worth(program, folder, seeds):
    """What a ranker saves."""
    folder.mkdir(parents=True, exist_ok=True)
    print("\nThe best after so many trials, ms, and trials to 1 % of the best that any run found; the median of "
          f"{seeds} seeds")  # fmt: skip
    print(f"{'domain':32}{'ranker':>9}" + "".join(f"{count:>9}" for count in CURVE) + f"{'to 1 %':>9}")
    for case in DOMAINS:
        other = next(one for one in DOMAINS if one[0] != case[0])
        predictor = folder / f"{other[0]}-{other[2]}.ranker.json"
        if not predictor.exists():
            run(program, "autosync-data", *problem(*other), "--count", 200, "--out", folder / "data.jsonl",
                "--ranker-out", predictor)  # fmt: skip
        rankers = {"none": "ranker=none", "formula": "ranker=formula", "linear": "ranker=linear",
                   "taught": f"ranker=linear,predictor={predictor}"}  # fmt: skip
        runs = {name: [trials_of(program, case, words, seed) for seed in range(seeds)] for name, words in rankers.items()}
        best = min((run[-1][1] for of in runs.values() for run in of if run), default=None)
        if best is None:
            print(f"{' '.join(map(str, case)):32}  none fits", flush=True)
            continue
        for name, of in runs.items():
            cells = [median(min((ms for count, ms in run if count <= most), default=math.inf) for run in of)
                     for most in CURVE]  # fmt: skip
            calls = median(next((count for count, ms in run if ms <= 1.01 * best), math.inf) for run in of)
            print(f"{' '.join(map(str, case)):32}{name:>9}" + "".join(f"{ms:9.1f}" for ms in cells)
                  + (f"{calls:9.0f}" if calls < math.inf else f"{'> 200':>9}"), flush=True)  # fmt: skip


def graph_of(model, folder):
    shipped = ROOT / f"models/{model}.json.gz"
    own = folder / shipped.name
    if not shipped.exists() and not own.exists():
        run(sys.executable, ROOT / "scripts/export_zoo.py", model, "--out", folder)
    return shipped if shipped.exists() else own


def print_ratios(title, found, ratio):
    """Models × clusters; -: one of the two fits nowhere."""
    print(f"\n{title}\n{'':14}" + "".join(f"{cluster:>6}" for cluster in CLUSTERS) + f"{'mean':>7}")
    every = []
    for model in MODELS:
        ratios = [ratio(found[model, cluster]) for cluster in CLUSTERS]
        known = [one for one in ratios if one]
        every += known
        mean = f"{math.exp(sum(map(math.log, known)) / len(known)):7.2f}" if known else f"{'-':>7}"
        print(f"{model:14}" + "".join(f"{one:6.2f}" if one else f"{'-':>6}" for one in ratios) + mean)
    print(f"{len(every)} cases: median {median(every):.3f}, least {min(every):.2f}, most {max(every):.2f}")


def cases(program, folder, threads):
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{graph_of(model, folder)} {ROOT}/configs/clusters/autosync-{cluster}.json {samples * devices}"
             for model, samples in MODELS.items() for cluster, devices in CLUSTERS.items()]  # fmt: skip
    (folder / "cases.txt").write_text("\n".join(lines) + "\n")
    found = {}
    for case in compared(program, folder / "cases.txt", folder / "cases.jsonl", threads, OTHERS, seconds_each=600):
        steps = {row["name"]: row["step_seconds"] for row in case["planners"] if row["feasible"]}
        found[name_of(case["graph"]), name_of(case["cluster"]).removeprefix("autosync-")] = steps
    def over(steps, mine, others):
        least = min((steps[name] for name in others if name in steps), default=None)
        return steps[mine] / least if mine in steps and least else None  # fmt: skip
    print_ratios("autosync's step over the best that is fixed", found, lambda s: over(s, "autosync", FIXED))
    print_ratios("plan's step over autosync's", found, lambda s: over(s, "portfolio", ["autosync"]))
    print(f"\n{'planner':16} {'fits':>8} {'over autosync: median':>22} {'least':>6} {'most':>7}")
    for name in OTHERS:
        ratios = [over(steps, name, ["autosync"]) for steps in found.values()]
        ratios = [one for one in ratios if one]
        fits = sum(name in steps for steps in found.values())
        print(f"{name.split(':')[0]:16} {fits:4}/{len(found)} {median(ratios):22.2f} {min(ratios):6.2f} {max(ratios):7.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategies", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--preset", default="release")
    parser.add_argument("--tables", nargs="+", default=TABLES, choices=TABLES)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=ROOT / "out/autosync")
    options = parser.parse_args()
    program = ROOT / "build" / options.preset / "bin" / "heterog"
    print(f"{machine()}, {options.preset} preset, {os.cpu_count()} threads; {options.strategies} strategies a domain, "
          f"{options.seeds} seed(s)")  # fmt: skip
    if "rankings" in options.tables:
        rankings([Domain(program, case, options.strategies) for case in DOMAINS], options.seeds)
    if "steps" in options.tables:
        steps(program)
    if "worth" in options.tables:
        worth(program, options.folder, options.seeds)
    if "cases" in options.tables:
        cases(program, options.folder, options.threads)


if __name__ == "__main__":
    main()
