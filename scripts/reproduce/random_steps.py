"""How far planners that place single operators are from the best, on random problems.

    scripts/reproduce.sh random_steps [--problems 500] [--seconds-by-rank 30] [--seconds-in-all 1] [--folder out/random_steps]

A problem is a step of 5 to 12 units on 2 devices, or 5 to 9 on 3, half of them on equal ones. A unit applies a weight of its
own 1 to 3 times to what one earlier unit made, or to the sum of what two made. Widths, batches and links
are drawn so that transfers take from a tenth of an operator's time to ten times as long. Printed of each
planner: the mean and the worst ratio of its step to that of the best of all placements by rank (a) and in
all orders (b). Where (b) was not finished, the best that was found counts. The same number, the same
problems; the folder keeps them and the rows, and the same command goes on from there. 100 problems take
about a quarter of an hour on one core.
"""

import argparse
import gzip
import json
import random
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from heterog_tables import PROGRAM, machine

BY_RANK, IN_ALL = "exact:space=ops", "exact:space=ops,orders=all"
PLANNERS = [
    "fastt-dpos", "fastt-dpos:critical-device=no", "fastt-dpos:critical-device=no,links=queued", "m-topo", "m-etf",
    "m-etf:links=queued", "m-sct", "metis", "dfs-topo", "order-place", "celeritas", "fastt", "reinforce", "hrl", "post",
    "gdp", "portfolio",
]  # fmt: skip
# Whose placements (b) is the best of, where it was finished: those with the backward pass where the forward
# pass is, which keep sets of operators together.
ON_ONE_DEVICE_EACH = {name for name in PLANNERS if name not in ("fastt", "reinforce", "hrl", "post", "gdp", "portfolio")}
EVALUATIONS = 20_000  # 3 devices to the 9th, and less
MODELS = ["V100-SXM2-16GB", "P100-PCIE-16GB", "GTX-1080-Ti"]


class Step:
    """A graph file as it grows: tensors and operators by number."""

    def __init__(self, name: str):
        self.tensors, self.ops, self.name = [], [], name

    def tensor(self, name: str, role: str, shape: list, **more) -> int:
        self.tensors.append({"name": name, "role": role, "dtype": "float32", "shape": shape} | more)
        return len(self.tensors) - 1

    def op(self, op: str, phase: str, args: list, made: list, kwargs: dict | None = None, **more) -> int:
        entry = {"name": f"op{len(self.ops)}", "op": op, "phase": phase} | more | {"args": args}
        self.ops.append(entry | ({"kwargs": kwargs} if kwargs else {}) | {"outputs": made})
        return len(self.ops) - 1


def joins(units: int, rng: random.Random) -> list[list[int]]:
    """What each unit reads: one or two earlier ones (-1: the input). Only the last is read by none."""
    reads: list[list[int]] = [[-1]]
    ends = [0]
    for unit in range(1, units):
        left = units - unit
        if len(ends) > left or (len(ends) > 1 and rng.random() < 0.4):
            chosen = rng.sample(ends, 2)
        elif len(ends) < left and rng.random() < 0.5:
            chosen = [rng.randrange(-1, unit)]  # a fork
        else:
            chosen = [rng.choice(ends)]
        reads.append(chosen)
        ends = [end for end in ends if end not in chosen] + [unit]
    return reads


def random_step(name: str, units: int, width: int, rng: random.Random) -> dict:
    step = Step(name)
    row, square = ["B", width], [width, width]
    x = step.tensor("x", "input", row)
    rate = step.tensor("optimizer/lr", "input", [], dtype="float64")
    weights = [step.tensor(f"{u}.weight", "parameter", square) for u in range(units)]
    buffers = [step.tensor(f"{u}.weight/momentum_buffer", "optimizer_state", square, of=weights[u])
               for u in range(units)]  # fmt: skip
    made: dict[int, int] = {-1: x}
    applied = []  # of each unit: its products, each with what it multiplied
    reads = joins(units, rng)
    for unit, sources in enumerate(reads):
        products = []
        value = made[sources[0]]
        for time in range(rng.randint(1, 3)):
            out = step.tensor(f"{unit}.{time}", "activation", row)
            if time == 0 and len(sources) == 2:
                args = [f"%{made[sources[1]]}", f"%{value}", f"%{weights[unit]}"]
                number = step.op("aten.addmm.default", "forward", args, [out], scope=str(unit))
            else:
                number = step.op("aten.mm.default", "forward", [f"%{value}", f"%{weights[unit]}"], [out],
                                 scope=str(unit))  # fmt: skip
            products.append((number, value))
            value = out
        made[unit] = value
        applied.append(products)
    loss = step.tensor("loss", "output", [])
    summed = step.op("aten.sum.default", "forward", [f"%{made[units - 1]}"], [loss])
    seed = step.tensor("seed", "activation", row)
    step.op("aten.ones_like.default", "backward", [f"%{made[units - 1]}"], [seed], forward=summed)

    gradients: dict[int, int] = {units - 1: seed}
    of_weight = []

    def add_to(known: int | None, value: int, shape: list, forward: int, role: str = "activation", **more) -> int:
        if known is None:
            return value
        total = step.tensor(f"sum{len(step.tensors)}", role, shape, **more)
        step.op("aten.add.Tensor", "backward", [f"%{known}", f"%{value}"], [total], forward=forward)
        return total

    for unit in reversed(range(units)):
        back = gradients[unit]
        gradient = None
        for time, (number, value) in reversed(list(enumerate(applied[unit]))):
            turned = step.tensor(f"t{len(step.tensors)}", "activation", [width, "B"], strides=[1, width])
            step.op("aten.t.default", "backward", [f"%{value}"], [turned], forward=number)
            part = step.tensor(f"part{len(step.tensors)}", "activation", square)
            step.op("aten.mm.default", "backward", [f"%{turned}", f"%{back}"], [part], forward=number)
            gradient = add_to(gradient, part, square, number)
            if time == 0 and len(reads[unit]) == 2:
                other = reads[unit][1]
                if other >= 0:
                    gradients[other] = add_to(gradients.get(other), back, row, applied[other][-1][0])
            source = reads[unit][0] if time == 0 else None
            if source == -1:
                continue
            turned = step.tensor(f"t{len(step.tensors)}", "activation", square, strides=[1, width])
            step.op("aten.t.default", "backward", [f"%{weights[unit]}"], [turned], forward=number)
            before = step.tensor(f"back{len(step.tensors)}", "activation", row)
            step.op("aten.mm.default", "backward", [f"%{back}", f"%{turned}"], [before], forward=number)
            if source is None:
                back = before
            else:
                gradients[source] = add_to(gradients.get(source), before, row, applied[source][-1][0])
        step.tensors[gradient] |= {"role": "gradient", "of": weights[unit]}
        of_weight.append((unit, gradient))
    for unit, gradient in sorted(of_weight):
        new = step.tensor(f"{unit}.weight/new", "output", square, replaces=weights[unit])
        buffer = step.tensor(f"{unit}.weight/new.2", "output", square, replaces=buffers[unit])
        step.op("aten._fused_sgd.tensor_lr", "update",
                [[f"%{weights[unit]}"], [f"%{gradient}"], [f"%{buffers[unit]}"]], [new, None, buffer],
                {"weight_decay": 0.0, "momentum": 0.9, "lr": f"%{rate}", "dampening": 0.0, "nesterov": False,
                 "maximize": False, "is_first_step": False}, scope=str(unit))  # fmt: skip
    return {
        "format": "heterog-graph", "version": 1, "name": name, "producer": {"torch": "2.11.0", "heterog": "0.1.0"},
        "traced_batches": [2, 3, 64], "holds": [[2, None]], "dtype": "float32",
        "optimizer": {"name": "SGD", "lr": 0.1, "momentum": 0.9, "dampening": 0, "weight_decay": 0,
                      "nesterov": False, "maximize": False},
        "loss": loss, "tensors": step.tensors, "ops": step.ops,
    }  # fmt: skip


def random_cluster(name: str, devices: int, equal: bool, rng: random.Random) -> dict:
    models = [rng.choice(MODELS)] * devices if equal else rng.choices(MODELS, k=devices)
    while not equal and len(set(models)) == 1:
        models = rng.choices(MODELS, k=devices)
    fabric = {"kind": "switch", "bandwidth_bytes_per_second": 10 ** rng.uniform(9.5, 11),
              "latency_seconds": 10 ** rng.uniform(-6, -5)}  # fmt: skip
    return {"format": "heterog-cluster", "version": 1, "name": name,
            "machines": [{"name": "m", "devices": [{"model": model, "count": 1} for model in models],
                          "fabric": fabric}]}  # fmt: skip


def write_problems(count: int, folder: Path) -> str:
    """Graphs and clusters, and the lines of `compare --cases`."""
    lines = []
    for number in range(count):
        rng = random.Random(number)
        devices = rng.choice([2, 3])
        # With the loss, which is a set of its own, at most 12 and 9 sets: the evaluations of (a).
        units = rng.randint(4, 11 if devices == 2 else 8)
        width = rng.choice([256, 512, 1024, 2048])
        graph, cluster = folder / f"step{number}.json.gz", folder / f"cluster{number}.json"
        with gzip.open(graph, "wt") as file:
            json.dump(random_step(f"random{number}", units, width, rng), file)
        cluster.write_text(json.dumps(random_cluster(f"random{number}", devices, number % 2 == 0, rng)))
        lines.append(f"{graph} {cluster} {rng.choice([16, 64, 256])}")
    return "\n".join(lines) + "\n"


def ratios(exact: list[dict], others: list[dict]) -> None:
    over: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    lost: dict[str, int] = defaultdict(int)
    unfinished = below = left_out = 0
    for best, case in zip(exact, others, strict=True):
        rows = {row["name"]: row for row in best["planners"]}
        if rows[BY_RANK]["step_seconds"] is None or rows[BY_RANK]["evaluations"] >= EVALUATIONS:
            left_out += 1
            continue
        a, all_orders = rows[BY_RANK]["step_seconds"], rows[IN_ALL]
        unfinished += all_orders["step_seconds"] is None or all_orders["evaluations"] >= EVALUATIONS
        b = min(a, all_orders["step_seconds"] or a)
        over["exact, in all orders (b)"]["a"].append(b / a)
        over["exact, in all orders (b)"]["b"].append(1)
        for row in case["planners"]:
            if row["step_seconds"] is None:
                lost[row["name"]] += 1
                continue
            over[row["name"]]["a"].append(row["step_seconds"] / a)
            over[row["name"]]["b"].append(row["step_seconds"] / b)
            below += row["name"] in ON_ONE_DEVICE_EACH and row["step_seconds"] < b
    print(f"{len(exact) - left_out} problems; {left_out} more in which (a) was not finished; (b) was not finished in "
          f"{unfinished}; placements below (b): {below}")  # fmt: skip
    print(f"{'planner':42} {'mean/(a)':>9} {'worst/(a)':>9} {'mean/(b)':>9} {'worst/(b)':>9} {'no plan':>8}")
    for name, of in sorted(over.items(), key=lambda item: sum(item[1]["b"]) / len(item[1]["b"])):
        cells = [f"{value:9.3f}" for key in "ab" for value in (sum(of[key]) / len(of[key]), max(of[key]))]
        print(f"{name:42} {' '.join(cells)} {lost[name]:8}")


def compared(folder: Path, name: str, options: argparse.Namespace, planners: list[str], *more: str) -> list[dict]:
    command = [PROGRAM, "compare", "--json", "--cases", folder / "cases.txt", "--planner", *planners,
               "--threads", str(options.threads), "--out", folder / f"{name}.jsonl", *more]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"heterog compare ended with {done.returncode}")
    return json.loads(done.stdout)["cases"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=500)
    parser.add_argument("--seconds-by-rank", type=float, default=30, help="of the exact planner, (a), for each problem")
    parser.add_argument("--seconds-in-all", type=float, default=1, help="of the same, (b)")
    parser.add_argument("--threads", type=int, default=1, help="problems at a time")
    parser.add_argument("--folder", type=Path, default=Path("out/random_steps"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / "cases.txt").write_text(write_problems(options.problems, options.folder))
    exact = compared(options.folder, "by_rank", options, [BY_RANK], "--evaluations", str(EVALUATIONS),
                     "--seconds-each", str(options.seconds_by_rank))  # fmt: skip
    in_all = compared(options.folder, "in_all", options, [IN_ALL], "--evaluations", str(EVALUATIONS),
                      "--seconds-each", str(options.seconds_in_all))  # fmt: skip
    for one, other in zip(exact, in_all, strict=True):
        one["planners"] += [row for row in other["planners"] if not row["baseline"]]
    others = compared(options.folder, "others", options, PLANNERS)
    print(f"steps simulated; planned on: {machine()}")
    ratios(exact, others)


if __name__ == "__main__":
    main()
