#!/usr/bin/env python3
"""Fits the constants of the calibrated cost model and prints how far it is from measurements.

usage: scripts/calibrate.py fit     writes the calibrations of configs/devices.json
       scripts/calibrate.py table   prints the errors on the rows that no fit has seen

Reads the samples of configs/calibration; needs numpy (.venv has it) and predict_samples, made by
`cmake --build build/dev --target predict_samples`: the formula stands in src/cost/kernel.cc alone,
and this script asks that program for every prediction. A new kind of kernel needs an entry in
devices.json, of any constants, before its first fit.
"""

import argparse
import collections
import json
import pathlib
import subprocess
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEVICES = ROOT / "configs/devices.json"
SAMPLES = ROOT / "configs/calibration"
BEGIN, END = "  // Calibrations, written by scripts/calibrate.py.\n", "  // End of the calibrations.\n"

Row = collections.namedtuple(
    "Row", "device constants group source shape held_out seconds calibrated roofline")
Constant = collections.namedtuple("Constant", "name start low high")

# In the order of cluster/calibration.h. Bounds keep what the data do not decide at sensible values.
PRODUCT = [Constant("share", 0.8, 0.02, 1.2), Constant("tile_loss", 10, 0.5, 400),
           Constant("fill", 16, 8, 4000), Constant("bandwidth_share", 0.7, 0.2, 1),
           Constant("fixed_seconds", 8e-6, 3e-6, 4e-5)]
WINOGRAD = Constant("winograd_share", 0.7, 0.02, 1.2)
WASTE = Constant("stride_waste", 0.3, 0.01, 1)
JOIN = Constant("join_seconds", 3e-7, 1e-8, 1e-4)
TRAFFIC = [Constant("bandwidth_share", 0.7, 0.01, 1), Constant("fixed_seconds", 8e-6, 3e-6, 6e-5)]
WINDOW = Constant("window_share", 0.01, 1e-4, 1)
HUBER = 0.15  # log error beyond which a row counts by its size, no longer by its square


class Program:
    """The C++ model behind a pipe."""

    def __init__(self, path):
        self.process = subprocess.Popen([path, str(DEVICES), str(SAMPLES)], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"calibrate.py: predict_samples ended on '{line}'")
        return answer

    def rows(self):
        line, rows = self.ask("rows"), []
        while line.strip():
            words = line.split()
            rows.append(Row(*words[:5], words[5] == "1", *map(float, words[6:])))
            line = self.process.stdout.readline()
        return rows

    def predict(self, device, constants, values):
        return np.array(self.ask(f"try {device} {constants} " + " ".join(f"{x:.9g}" for x in values))
                        .split(), float)


def minimise(residuals, start, low, high):
    """Levenberg and Marquardt's method on the pseudo-Huber loss, within bounds."""
    def loss(r):
        return np.sum(np.sqrt(1 + (r / HUBER) ** 2) - 1)

    x, damping = np.array(start, float), 1e-2
    r = residuals(x)
    for _ in range(60):
        columns = []
        for j in range(len(x)):
            step = np.zeros(len(x))
            # Waves make steps: a difference over 2 % of a constant sees past them.
            step[j] = 0.02
            up, down = np.minimum(x + step, high), np.maximum(x - step, low)
            columns.append((residuals(up) - residuals(down)) / (up - down)[j])
        jacobian = np.stack(columns, 1)
        weight = 1 / np.sqrt(1 + (r / HUBER) ** 2)
        normal = jacobian.T @ (jacobian * weight[:, None])
        gradient = jacobian.T @ (weight * r)
        gained = 0
        for _ in range(8):
            move = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-9), -gradient)
            candidate = np.clip(x + move, low, high)
            moved = residuals(candidate)
            if loss(moved) < loss(r):
                gained = 1 - loss(moved) / loss(r)
                x, r, damping = candidate, moved, max(damping / 3, 1e-6)
                break
            damping *= 4
        if gained < 1e-4:
            break
    return x, loss(r)


def fit_constants(program, rows, device, name):
    """{constant: value} of one kind of kernel on one device, from the rows that are not held out."""
    mine = [row for row in rows if row.device == device and row.constants == name]
    seen = np.array([not row.held_out for row in mine])
    measured = np.array([row.seconds for row in mine])
    if name == "depthwise_convolution":
        constants, full = [Constant("share", 0.03, 1e-3, 1)], ["share"]
    elif name.startswith(("matmul", "convolution")):
        constants = [*PRODUCT, JOIN]
        if name.startswith("convolution") and not name.endswith("half"):
            constants.append(WINOGRAD)
        if name.startswith("convolution_input"):
            constants.append(WASTE)
        full = [constant.name for constant in PRODUCT] + ["winograd_share", "stride_waste", "join_seconds"]
    else:
        constants = [*TRAFFIC, WINDOW] if name.startswith("pooling") else TRAFFIC
        full = [constant.name for constant in [*TRAFFIC, WINDOW]]
    names = [constant.name for constant in constants]

    def values(x):
        found = dict(zip(names, np.exp(x)))
        return [found.get(key, 0) for key in full]

    def residuals(x):
        return np.log(program.predict(device, name, values(x)) / measured)[seen]

    low, high = (np.log([getattr(constant, key) for constant in constants]) for key in ("low", "high"))
    starts = [dict(zip(names, np.log([constant.start for constant in constants])))]
    if "tile_loss" in names:
        # Waves make valleys: begin at several places and keep the best.
        starts = [dict(starts[0], tile_loss=np.log(loss), fill=np.log(fill), join_seconds=np.log(join))
                  for loss in (8, 60) for fill in (10, 200) for join in (3e-7, 3e-5)]
    starts = [np.array([start[key] for key in names]) for start in starts]
    best = min((minimise(residuals, start, low, high) for start in starts), key=lambda pair: pair[1])
    return {key: float(f"{value:.3g}") for key, value in zip(names, np.exp(best[0]))}


PRODUCTS = ["matmul", "convolution_forward", "convolution_input_gradient",
            "convolution_weight_gradient"]
TRAFFICS = ["elementwise", "reduction", "batch_norm", "layer_norm", "softmax", "pooling",
            "pooling_backward",
            "embedding", "copy", "optimizer"]

# Calibration: the measured devices whose fits it takes, the first that has one.
MEASURED = {
    "v100": ["V100-SXM2-16GB", "V100-PCIE-32GB", "V100-PCIE-16GB"],
    "p100": ["P100-PCIE-16GB"],
    "gtx-1080-ti": ["GTX-1080-Ti", "P4"],
    "titan-x-pascal": ["TITAN-X-Pascal", "P4"],
    "titan-x-maxwell": ["TITAN-X-Maxwell", "P4"],
    "t4": ["T4"],
    "a100": ["A100-SXM4-40GB"],
}
# Calibration: where its products and its traffic are assumed from, and why.
ASSUMED = {
    "rtx-2080-ti": ("v100", "t4", "not measured: products assumed as on the V100 (a multiprocessor "
                    "of the same kind, no power limit near), traffic as on the T4 (GDDR6)"),
    "rtx-30-40": ("a100", "t4", "not measured: products assumed as on the A100, traffic as on the T4"),
    "l4": ("t4", "t4", "not measured: assumed as the T4, another card of about 70 W"),
    "hopper": ("a100", "a100", "not measured: assumed as the A100"),
}
DEPTHWISE = "depthwise_convolution"


def bytes_per_flop(entry):
    return entry["memory_bytes_per_second"] / entry["fp32_flops_per_second"]


def complete(name, fitted, v100, devices):
    """Constants of every kind for a measured calibration, and what of them was assumed."""
    sources = MEASURED[name]
    found, assumed = {}, []
    products = [product + suffix for suffix in ("", "_half") for product in PRODUCTS]
    for kind in [*products, *TRAFFICS, DEPTHWISE]:
        for device in sources:
            if kind in fitted.get(device, {}):
                found[kind] = dict(fitted[device][kind])
                break
    tensor_cores = name == "a100"
    for product in PRODUCTS:
        if product not in found:
            found[product] = "v100"
            assumed.append(f"{product} as on the V100")
        if product + "_half" not in found:
            found[product + "_half"] = "v100" if tensor_cores else found[product]
            assumed.append(f"{product} in half precision "
                           + ("as on the V100" if tensor_cores else "as in single"))
    for kind in ("reduction", "copy", "optimizer"):
        found[kind] = found["elementwise"]
    assumed.append("reduction, copy and optimizer as elementwise")
    found["embedding"] = found["softmax"]
    assumed.append("embedding as softmax")
    if name != "v100":
        for kind in ("batch_norm", "pooling", "pooling_backward"):
            scale = found["elementwise"]["bandwidth_share"] / v100["elementwise"]["bandwidth_share"]
            found[kind] = dict(v100[kind], bandwidth_share=float(
                f"{v100[kind]['bandwidth_share'] * scale:.3g}"))
        # Depthwise kernels are bound by loads.
        scale = bytes_per_flop(devices[sources[0]]) / bytes_per_flop(devices["V100-PCIE-16GB"])
        found[DEPTHWISE] = {"share": float(f"{v100[DEPTHWISE]['share'] * scale:.3g}")}
        assumed.append("batch_norm, pooling and depthwise_convolution as on the V100, by bandwidth")
    return found, assumed


def calibrations(fitted, devices):
    """The list of configs/devices.json."""
    v100, _ = complete("v100", fitted, None, devices)
    for name, sources in MEASURED.items():
        found, assumed = complete(name, fitted, v100, devices)
        yield {"name": name, "source": f"fitted to {' and '.join(sources)} of configs/calibration; "
               + "assumed: " + "; ".join(assumed), **found}
    for name, (products, traffic, source) in ASSUMED.items():
        kinds = {product + suffix: products for suffix in ("", "_half") for product in PRODUCTS}
        yield {"name": name, "source": source, **kinds,
               **{kind: traffic for kind in [*TRAFFICS, DEPTHWISE]}}
    product = {"share": 0.7, "tile_loss": 0, "fill": 0, "bandwidth_share": 0.7, "fixed_seconds": 2e-6}
    traffic = {"bandwidth_share": 0.6, "fixed_seconds": 2e-6}
    yield {"name": "cpu", "source": "not measured: round figures, to be overridden by a profile",
           **{kind + suffix: product for suffix in ("", "_half") for kind in PRODUCTS},
           **{kind: traffic for kind in TRAFFICS}, DEPTHWISE: {"share": 0.05}}


def write(calibrations_list):
    text = DEVICES.read_text()
    lines = []
    for entry in calibrations_list:
        fields = [f'    {{"name": "{entry.pop("name")}"', f'     "source": {json.dumps(entry.pop("source"))}']
        fields += [f'     "{key}": {json.dumps(value)}' for key, value in entry.items()]
        lines.append(",\n".join(fields) + "}")
    block = BEGIN + '  "calibrations": [\n' + ",\n".join(lines) + "\n  ],\n" + END
    if BEGIN in text:
        before, rest = text.split(BEGIN)
        text = before + block + rest.split(END)[1]
    else:
        text = text.replace('  "devices": [\n', block + '  "devices": [\n')
    DEVICES.write_text(text)


def table(rows):
    """Lines of errors on held-out rows, per device and kind of kernel, then over all devices."""
    groups = collections.defaultdict(list)
    for row in rows:
        if row.held_out:
            groups[row.device, row.group].append(row)
            groups["~", row.group].append(row)  # sorts behind every name
    yield (f"{'device':16} {'kernels':37} {'rows':>4}   {'calibrated: median':>18} {'mean':>6}   "
           f"{'roofline: median':>16} {'mean':>6}")
    for (device, group), members in sorted(groups.items()):
        errors = [[100 * abs(getattr(row, key) / row.seconds - 1) for row in members]
                  for key in ("calibrated", "roofline")]
        cells = [(np.median(error), np.mean(error)) for error in errors]
        yield (f"{device.replace('~', 'all'):16} {group:37} {len(members):4}   "
               f"{cells[0][0]:16.1f} % {cells[0][1]:4.0f} %   "
               f"{cells[1][0]:14.1f} % {cells[1][1]:4.0f} %")


def ratios(rows):
    """Lines of one card's time over another's on the same shapes, measured and ours."""
    yield (f"{'kernels':16} {'ratio of times':34} {'shapes':>6} {'measured':>9} {'calibrated':>11} "
           f"{'roofline':>9}")
    for slow, fast in (("GTX-1080-Ti", "V100-SXM2-16GB"), ("P100-PCIE-16GB", "GTX-1080-Ti")):
        for kind in ("matmul", "convolution"):
            # The sheets list the same shapes, though not in the same order for every card.
            times = collections.defaultdict(dict)
            for row in rows:
                if (row.source == "deepbench" and row.constants.startswith(kind)
                        and "half" not in row.constants):
                    times[row.shape].setdefault(row.device, row)
            pairs = [(seen[slow], seen[fast]) for seen in times.values() if slow in seen and fast in seen]
            cells = [np.median([getattr(a, key) / getattr(b, key) for a, b in pairs])
                     for key in ("seconds", "calibrated", "roofline")]
            yield (f"{kind:16} {slow + ' / ' + fast:34} {len(pairs):6} {cells[0]:9.2f} {cells[1]:11.2f} "
                   f"{cells[2]:9.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["fit", "table"])
    parser.add_argument("--program", default=str(ROOT / "build/dev/bin/predict_samples"))
    arguments = parser.parse_args()
    program = Program(arguments.program)
    rows = program.rows()
    if arguments.what == "table":
        print("\n".join([*table(rows), "", *ratios(rows)]))
        return
    fitted = {}
    for device, name in sorted({(row.device, row.constants) for row in rows}):
        fitted.setdefault(device, {})[name] = fit_constants(program, rows, device, name)
        print(device, name, fitted[device][name], file=sys.stderr)
    write(calibrations(fitted, device_entries()))


def device_entries():
    """{name: entry} of the data base, whose comments JSON does not know."""
    text = "\n".join(line for line in DEVICES.read_text().splitlines()
                     if not line.lstrip().startswith("//"))
    return {entry["name"]: entry for entry in json.loads(text)["devices"]}


if __name__ == "__main__":
    main()
