#!/usr/bin/env python3
"""Fits what cards sustain through whole training steps, and prints how far steps are from measured ones.

usage: scripts/calibrate/steps.py fit    writes `sustained` of the devices of configs/devices.json
       scripts/calibrate/steps.py table  prints each step, then the errors card by card

The steps are those of configs/calibration/model_steps.csv and model_steps_2.csv, of graphs in
out/steps (scripts/calibrate/step_graphs.py exports them). Needs numpy (.venv has it) and print_costs, made by
`cmake --build build/dev --target print_costs`.

Kernels were timed alone, on a card that was cool and had power to spare; within a step it is neither.
A chip has a factor for each kind of kernel and precision, and a card a small one of its own beside
it. Factors that no step decides stay at 1. A chip has few steps, so the error that counts is the one
on steps that the fit has not seen: each network of each source is left out once (`unseen`).
"""

import argparse
import collections
import csv
import functools
import json
import pathlib
import re
import statistics
import subprocess
import sys

import numpy as np

from kernel_times import DEVICES, calibration_entries, device_entries

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS = ROOT / "out/steps"
NAMES = {"P100": "P100-PCIE-16GB"}
# To start an operator: of frameworks and hosts of 2018, and of 2021.
HOSTS = {"model_steps.csv": "5e-5", "model_steps_2.csv": "2e-5"}
GRAPHS = {"fp32": "", "tf32": "-tf32", "amp": "-amp"}
SUFFIX = {"fp32": "", "tf32": "_tf32", "amp": "_half"}

# Cards of a chip, and those that are counted as of it for want of steps of their own.
CHIPS = {
    "GV100": ["V100-SXM2-16GB", "V100-SXM2-32GB", "V100-PCIE-16GB", "V100-PCIE-32GB"],
    "GP100": ["P100-PCIE-16GB", "P100-PCIE-12GB"],
    "GP102": ["GTX-1080-Ti", "TITAN-X-Pascal"],
    "GM200": ["TITAN-X-Maxwell"],
    "TU102": ["RTX-2080-Ti", "TITAN-RTX"],
    "GA102": ["RTX-3090", "RTX-3060", "RTX-3060-Ti", "RTX-3070", "RTX-3070-Ti", "RTX-3080",
              "RTX-3080-Ti", "A10G", "A10", "A40", "RTX-A5000", "RTX-A6000"],
    "AD102": ["RTX-4090", "RTX-4060", "RTX-4060-Ti", "RTX-4070", "RTX-4070-Ti", "RTX-4080", "RTX-5090",
              "L40S", "RTX-6000-Ada-Generation"],
    "GA100": ["A100-SXM4-40GB", "A100-SXM4-80GB", "A100-PCIE-40GB", "A100-80GB-PCIe", "A30"],
    "GH100": ["H100-SXM5-80GB", "H100-PCIe", "H200-SXM5-141GB"],
    "AD104": ["L4"],
}  # fmt: skip

# TensorFlow 1 of 2020 on the A100: 38 % slower than six steps of PyTorch on the same chip say, and
# no faster than the same program on an RTX 3090. No factor of a card can be both.
LEFT_OUT = {("A100-SXM4-40GB", "lambdal/lambda-tensorflow-benchmark")}

# Deviations of the logarithms: of a chip's factor, of a card's beside it, of a step's error.
CHIP, CARD, STEP = 0.3, 0.05, 0.05
TRAFFIC = 0.1  # as CHIP, of what moves bytes
# Chips whose memory nobody timed (docs/costs.md); of the others the figure stands.
BORROWED = ("GA102", "AD102")
LEAST = 0.25  # of a step that a kind of kernel takes, for the step to decide its factor
FAR = 2  # deviations from which on a step counts by its distance, no longer by its square

# Of the peak, what no kernel exceeds: of arithmetic, and of bandwidth.
MOST = {"matmul": 1, "traffic": 0.95}

Step = collections.namedtuple("Step", "device graph batch precision source seconds parts")


def published():
    """(device, graph, batch, precision, source, seconds, whether it updates, host) of each step."""
    for name, host in HOSTS.items():
        for row in csv.DictReader((ROOT / "configs/calibration" / name).open()):
            precision = row.get("precision", "fp32")
            model = row["model"].removesuffix("_forward_backward")
            graph = model + GRAPHS[precision]
            # With Apex's O2, which is parameters in half precision.
            if precision == "amp" and model.startswith("bert"):
                graph = f"{model}-masters"
            updates = row.get("with_update", str(model == row["model"])) == "True"
            yield (NAMES.get(row["device"], row["device"]), graph, row["batch"], precision, row["source"],
                   1e-3 * float(row["step_ms"]), updates, host)  # fmt: skip


def steps(program, *options):
    """Every published step with the seconds of its parts: products, convolutions and the rest."""
    missing = set()
    for device, graph, batch, precision, source, seconds, updates, host in published():
        path = STEPS / f"{graph}.json.gz"
        if not path.exists():
            missing.add(graph)
            continue
        out = subprocess.run([program, str(path), str(DEVICES), batch, "--host", host, "--device", device,
                              *options], check=True, capture_output=True, text=True).stdout  # fmt: skip
        found = json.loads(out)["devices"][device]
        whole = found["seconds"] - (0 if updates else found["optimizer"])
        parts = {"matmul": found["matmul"], "convolution": found["convolution"] + found["convolution_3x3"]}
        parts["traffic"] = whole - sum(parts.values())
        yield Step(device, graph, int(batch), precision, source, seconds, parts)
    if missing:
        print("no graph, left out: " + ", ".join(sorted(missing)) + " (scripts/calibrate/step_graphs.py)",
              file=sys.stderr)


def chip_of(device):
    return next(chip for chip, cards in CHIPS.items() if device in cards)


def key_of(step, kind):
    return kind if kind == "traffic" else kind + SUFFIX[step.precision]


def fit(found):
    """{("chip" or "card", name, key): log factor}. Gauss and Newton's method on the logarithms of
    predicted over measured, with weights that make far steps count less."""
    slots = sorted({slot for step in found for kind, part in step.parts.items()
                    if (kind != "traffic" or chip_of(step.device) in BORROWED)
                    and part > LEAST * sum(step.parts.values())
                    for slot in (("chip", chip_of(step.device), key_of(step, kind)),
                                 ("card", step.device, key_of(step, kind)))})  # fmt: skip
    place = {slot: i for i, slot in enumerate(slots)}
    most = np.array([min(limit(card, key) for card in (CHIPS[name] if level == "chip" else [name]))
                     for level, name, key in slots])  # fmt: skip
    chip = [place.get(("chip", chip_of(name), key)) if level == "card" else None
            for level, name, key in slots]  # fmt: skip
    spread = np.array([CARD if slot[0] == "card" else TRAFFIC if slot[2] == "traffic" else CHIP
                       for slot in slots])
    x = np.zeros(len(slots))
    for _ in range(30):
        rows, errors = np.zeros((len(found), len(slots))), np.zeros(len(found))
        for i, step in enumerate(found):
            parts = scaled(step, dict(zip(slots, x)))
            whole = sum(parts.values())
            errors[i] = np.log(whole / step.seconds)
            for kind, part in parts.items():
                for slot in slots_of(step, kind):
                    if slot in place:
                        rows[i, place[slot]] = -part / whole
        weights = 1 / np.maximum(1, np.abs(errors) / (FAR * STEP)) / STEP**2
        normal = rows.T @ (rows * weights[:, None]) + np.diag(1 / spread**2)
        x -= np.linalg.solve(normal, rows.T @ (weights * errors) + x / spread**2)
        x = np.minimum(x, [limit if other is None else limit - min(x[other], most[other])
                           for limit, other in zip(most, chip)])  # fmt: skip
    return dict(zip(slots, x))


@functools.cache
def limit(card, key):
    """The logarithm of the most that the factor of a card can be."""
    kind, _, precision = key.partition("_")
    if kind not in MOST:
        return np.inf  # libraries save multiplications of convolutions
    constants = calibration(device_entries()[card]["calibration"],
                            {"traffic": "elementwise"}.get(kind, kind + "_half" * bool(precision)))
    return np.log(MOST[kind] / constants["bandwidth_share" if kind == "traffic" else "share"])


def calibration(name, kind):
    constants = calibration_entries()[name][kind]
    return calibration(constants, kind) if isinstance(constants, str) else constants


def slots_of(step, kind):
    key = key_of(step, kind)
    return ("chip", chip_of(step.device), key), ("card", step.device, key)


def scaled(step, factors):
    return {kind: part / np.exp(sum(factors.get(slot, 0) for slot in slots_of(step, kind)))
            for kind, part in step.parts.items()}  # fmt: skip


def error(step, factors):
    return 100 * (sum(scaled(step, factors).values()) / step.seconds - 1)


def family(step):
    return step.source, step.graph.split("-")[0], step.precision


def fitted_steps(found):
    return [step for step in found if (step.device, step.source) not in LEFT_OUT]


def unseen(found):
    """Errors of the steps, each predicted by factors that were fitted without its network's steps
    of its source and precision on its card."""
    errors = {}
    for step in found:
        rest = [other for other in fitted_steps(found)
                if (other.device, family(other)) != (step.device, family(step))]
        key = step.device, family(step)
        if key not in errors:
            errors[key] = fit(rest)
        yield error(step, errors[key])


def summary(name, errors):
    return (f"{name:16} {len(errors):3} steps: bias {statistics.mean(errors):+5.1f} %, median of errors "
            f"{statistics.median(map(abs, errors)):4.1f} %, median {statistics.median(errors):+5.1f} %")


def table(program):
    shipped, bare = list(steps(program)), list(steps(program, "--bare"))
    left_out = list(unseen(bare))
    yield (f"{'device':16} {'graph':26} {'batch':>5} {'published ms':>12} {'ours ms':>8} {'error':>8} "
           f"{'unseen':>8} {'alone':>8}  source")
    by_card, groups = collections.defaultdict(list), collections.defaultdict(list)
    for step, alone, other in zip(shipped, bare, left_out):
        ours, kernels = error(step, {}), error(alone, {})
        marked = "*" if (step.device, step.source) in LEFT_OUT else " "
        yield (f"{step.device:16} {step.graph:26} {step.batch:5} {1e3 * step.seconds:12.1f} "
               f"{1e3 * sum(step.parts.values()):8.1f} {ours:+6.1f} % {other:+6.1f} % {kernels:+6.1f} % "
               f"{marked}{step.source}")
        if marked == " ":
            by_card[step.device].append(ours)
            for group, value in (("fitted", ours), ("unseen", other), ("kernels alone", kernels)):
                groups[group].append(value)
    for name, errors in [*sorted(by_card.items()), *groups.items()]:
        yield summary(name, errors)


def sustained(found):
    """{device: {key: factor}}, of every card of the chips that have steps."""
    factors = fit(fitted_steps(found))
    result = collections.defaultdict(dict)
    for (level, chip, key), value in factors.items():
        if level == "chip":
            for card in CHIPS[chip]:
                own = factors.get(("card", card, key), 0)
                result[card][key] = float(f"{np.exp(value + own):.3f}")
    return result


def write(factors):
    text = DEVICES.read_text()
    text = re.sub(r',\n     "sustained": \{[^}]*\}', "", text)
    for name in device_entries():
        if name in factors:
            begin = text.index(f'{{"name": "{name}",\n     "source"', text.index('  "devices": ['))
            end = text.index("}", begin)
            line = json.dumps(dict(sorted(factors[name].items())))
            text = text[:end] + f',\n     "sustained": {line}' + text[end:]
    DEVICES.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["fit", "table"])
    parser.add_argument("--program", default=str(ROOT / "build/dev/bin/print_costs"))
    arguments = parser.parse_args()
    if arguments.what == "table":
        print("\n".join(table(arguments.program)))
    else:
        write(sustained(list(steps(arguments.program, "--bare"))))


if __name__ == "__main__":
    main()
