"""FastT's Tables 1, 2, 3, 4, 6 and its Figure 2 on our simulator, beside the paper's figures.

    scripts/reproduce.sh fastt_tables [--tables 1 2 3 4 6 figure2] [--threads 2] [--folder out/fastt_tables]

Servers have 8 V100 of 16 GB; what connects two of them is not in the paper, and 100 GbE here. DP is the best
plain data parallelism, FastT is `fastt`, plan is `plan` in one shot. Speeds are samples a second, of the
Transformer sentences of 64 tokens. A gain is the best of a row over its best DP, at any number of GPUs, as in
the paper. The folder keeps rows, and the same command goes on from there.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

from every_planner import name_of
from heterog_tables import PROGRAM, ROOT, machine

# Model, batch, then the paper's: gain of Table 1 and of Table 2, seconds of Table 4 on 2, 4, 8 GPUs,
# seconds of Table 6 without and with splits (None: equal).
MODELS = [
    ("inception_v3", 64, 1.5, 4.7, (28.7, 64.5, 124.8), (0.161, 0.154)),
    ("vgg19", 64, 59.4, 19.2, (24.41, 62.74, 118.4), (0.356, 0.321)),
    ("resnet200", 32, 16.4, 6.2, (201.2, 481.9, 792.5), (0.249, 0.225)),
    ("lenet5", 256, 36.3, 15.8, (3.54, 8.71, 11.28), None),
    ("alexnet", 256, 37.6, 9.3, (4.23, 9.58, 18.46), None),
    ("gnmt4", 128, 8.9, 4.9, (122.31, 259.43, 522.85), None),
    ("lstm_lm", 64, 12.9, 2.7, (48.95, 92.31, 174.22), None),
    ("transformer6", 64, 14.7, 0.0, (783.0, 1952.6, 5775.2), (0.281, 0.264)),
    ("bert_64_tokens", 16, 22.8, 7.8, (448.9, 470.3, 529.9), (0.113, 0.105)),
]
STRONG = [("fastt-1gpu", 1), ("fastt-2gpu", 2), ("fastt-4gpu", 4), ("fastt-8gpu", 8), ("fastt-2x4gpu", 8)]
WEAK = [*STRONG[:-1], ("fastt-2x8gpu", 16)]
# Batch, then the paper's seconds: one GPU, DP on two, FastT on two (None: out of memory).
TABLE3 = [(16, 0.192, 0.138, 0.121), (32, None, 0.233, 0.219), (40, None, None, 0.287), (48, None, None, 0.316)]
PLANNERS = ["fastt", "portfolio"]
WHOLE = "fastt:operators=0"


def graph_of(model: str, folder: Path) -> Path:
    """That of the zoo; BERT-large with the paper's 64 tokens is exported into the folder."""
    if model != "bert_64_tokens":
        return ROOT / "models" / f"{model}.json.gz"
    path = folder / f"{model}.json.gz"
    if not path.exists():
        import heterog
        from heterog import zoo
        from heterog.zoo.language import bert_inputs

        warnings.filterwarnings("ignore", module="torch|transformers")
        spec = zoo.get("bert_large24")
        inputs = bert_inputs(64, 30522)
        heterog.export_training_step(spec.factory, inputs, spec.loss_fn, spec.optimizer, model).save(path)
    return path


class Rows:
    """Rows of `heterog compare` for many cases, kept in a folder."""

    def __init__(self, folder: Path, threads: int, graph_of: Callable[[str, Path], Path]):
        self.folder = folder
        self.threads = threads
        self.graph_of = graph_of

    def of(self, name: str, cases: list[tuple[str, str, int]], planners: list[str]) -> dict:
        """By case and planner; a plan that does not fit is none."""
        file = self.folder / f"{name}.txt"
        lines = [
            f"{self.graph_of(model, self.folder)} {ROOT}/configs/clusters/{cluster}.json {batch}"
            for model, cluster, batch in cases
        ]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        command = [PROGRAM, "compare", "--json", "--cases", file, "--planner", *planners, "--threads",
                   str(self.threads), "--out", self.folder / f"{name}.jsonl"]  # fmt: skip
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"heterog compare ended with {done.returncode}")
        found = {}
        for case in json.loads(done.stdout)["cases"]:
            rows = {row["name"]: row for row in case["planners"]}
            found[name_of(case["graph"]), name_of(case["cluster"]), case["batch"]] = rows
        return found


def seconds(row: dict) -> float | None:
    return row["step_seconds"] if row["feasible"] else None


def data_parallel(rows: dict) -> float | None:
    found = [seconds(row) for name, row in rows.items() if row["baseline"] and name != "single"]
    return min((step for step in found if step is not None), default=None)


def speed(batch: int, step: float | None) -> str:
    return "OOM" if step is None else f"{batch / step:.0f}"


def scaling(number: int, places: list, weak: bool, rows: Rows) -> None:
    """Table 1 or 2."""
    kind = "samples a GPU" if weak else "samples"
    print(f"Table {number}, {'weak' if weak else 'strong'} scaling: DP / FastT / plan, samples a second")
    heads = ["1 GPU", *(f"{gpus} GPUs{' (2 servers)' if '2x' in name else ''}" for name, gpus in places[1:])]
    print(f"{f'model ({kind})':24} {heads[0]:>7} " + " ".join(f"{head:>20}" for head in heads[1:])
          + "   FastT's gain (paper)  plan's")  # fmt: skip
    cases = [(model, cluster, batch * gpus if weak else batch)
             for model, batch, *_ in MODELS for cluster, gpus in places]  # fmt: skip
    found = rows.of(f"table{number}", cases, [*PLANNERS, WHOLE])
    for model, batch, strong_gain, weak_gain, *_ in MODELS:
        cells, best = [], {"DP": 0.0, "fastt": 0.0, "portfolio": 0.0}
        for cluster, gpus in places[1:]:
            samples = batch * gpus if weak else batch
            of = found[model, cluster, samples]
            steps = {"DP": data_parallel(of)} | {name: seconds(of[name]) for name in PLANNERS}
            cells.append("/".join(speed(samples, step) for step in steps.values()))
            for name, step in steps.items():
                best[name] = max(best[name], samples / step if step else 0.0)
        one = seconds(found[model, places[0][0], batch]["single"])
        gains = [100 * (best[name] / best["DP"] - 1) for name in PLANNERS]
        paper = weak_gain if weak else strong_gain
        print(f"{f'{model} ({batch})':24} {speed(batch, one):>7} " + " ".join(f"{cell:>20}" for cell in cells)
              + f"   {gains[0]:+12.1f} % ({paper:.1f}) {gains[1]:+6.1f} %", flush=True)  # fmt: skip
    print()


def table3(rows: Rows) -> None:
    print("Table 3, BERT-large, 64 tokens, seconds a step (paper)")
    print(f"{'batch':>5} {'one GPU':>16} {'DP, 2 GPUs':>16} {'FastT, 2 GPUs':>16} {'plan':>7}")
    cases = [("bert_64_tokens", f"fastt-{gpus}gpu", batch) for batch, *_ in TABLE3 for gpus in (1, 2)]
    found = rows.of("table3", cases, PLANNERS)

    def cell(step, paper=None):
        word = "OOM" if step is None else f"{step:.3f}"
        return word if paper == "none" else f"{word} ({'OOM' if paper is None else f'{paper:.3f}'})"

    for batch, *paper in TABLE3:
        one = seconds(found["bert_64_tokens", "fastt-1gpu", batch]["single"])
        two = found["bert_64_tokens", "fastt-2gpu", batch]
        steps = [one, data_parallel(two), seconds(two["fastt"])]
        cells = [cell(step, theirs) for step, theirs in zip(steps, paper)]
        print(f"{batch:5} " + " ".join(f"{word:>16}" for word in cells) + f" {cell(seconds(two['portfolio']), 'none'):>7}")
    print()


def table4(rows: Rows) -> None:
    print("Table 4, seconds of planning, one thread (paper: with its trials on the GPUs)")
    print(f"{'model (batch)':24} " + " ".join(f"{f'{gpus} GPUs':>18}" for gpus in (2, 4, 8)))
    cases = [(model, f"fastt-{gpus}gpu", batch) for model, batch, *_ in MODELS for gpus in (2, 4, 8)]
    found = rows.of("table4", cases, ["fastt"])
    for model, batch, _, _, paper, _ in MODELS:
        cells = [f"{found[model, f'fastt-{gpus}gpu', batch]['fastt']['plan_seconds']:.2f} ({theirs})"
                 for gpus, theirs in zip((2, 4, 8), paper)]  # fmt: skip
        print(f"{f'{model} ({batch})':24} " + " ".join(f"{cell:>18}" for cell in cells))
    print()


def table6(rows: Rows) -> None:
    """Where FastT gains most over DP, as in the paper; of equal gains, on the fewest GPUs."""
    print("Table 6, without further splits of operators and with them, seconds a step (paper's gain)")
    cases = [(model, cluster, batch) for model, batch, *_ in MODELS for cluster, _ in STRONG]
    found = rows.of("table1", cases, [*PLANNERS, WHOLE])
    for model, batch, *_, paper in MODELS:
        where = [found[model, cluster, batch] for cluster, _ in STRONG[1:]]
        of = max(where, key=lambda row: (data_parallel(row) or 0.0) / (seconds(row["fastt"]) or float("inf")))
        whole, split = seconds(of[WHOLE]), seconds(of["fastt"])
        theirs = "equal" if paper is None else f"{100 * (paper[0] / paper[1] - 1):.1f} %"
        print(f"{f'{model} ({batch})':24} {whole:7.3f} {split:7.3f} {100 * (whole / split - 1):+6.1f} % ({theirs})")
    print()


def figure2(folder: Path) -> None:
    """What an order gains over first come, first served, for FastT's plan and list scheduling."""
    print("Figure 2, gain of an enforced order over first come, first served, 2 GPUs (paper: up to 26.9 %)")
    print(f"{'model (batch)':24} {'fastt':>8} {'fastt-dpos':>11}")
    with tempfile.TemporaryDirectory() as room:
        plan = Path(room) / "plan.json"
        for model, batch, *_ in MODELS:
            problem = ["--graph", graph_of(model, folder), "--cluster", "fastt-2gpu"]
            cells = []
            for planner in ("fastt", "fastt-dpos:order=own"):
                run(["plan", *problem, "--batch", batch, "--planner", planner, "--out", plan])
                own, fifo = (
                    json.loads(run(["simulate", *problem, "--plan", plan, "--json", *words]))["step_seconds"]
                    for words in ((), ("--order", "fifo"))
                )
                cells.append(f"{100 * (fifo / own - 1):+.1f} %")
            print(f"{f'{model} ({batch})':24} {cells[0]:>8} {cells[1]:>11}", flush=True)
    print()


def run(words: list) -> str:
    done = subprocess.run([str(word) for word in (PROGRAM, *words)], stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 3):
        sys.exit(f"heterog {words[0]} ended with {done.returncode}")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ["1", "2", "3", "4", "6", "figure2"]
    parser.add_argument("--tables", nargs="+", choices=names, default=names)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=ROOT / "out/fastt_tables")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    rows = Rows(options.folder, options.threads, graph_of)
    print(f"simulated; planned on: {machine()}\n")
    tables = {
        "1": lambda: scaling(1, STRONG, False, rows), "2": lambda: scaling(2, WEAK, True, rows),
        "3": lambda: table3(rows), "4": lambda: table4(rows), "6": lambda: table6(rows),
        "figure2": lambda: figure2(options.folder),
    }  # fmt: skip
    for name in options.tables:
        tables[name]()


if __name__ == "__main__":
    main()
