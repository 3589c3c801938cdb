#!/usr/bin/env python3
"""Fits the constants of the calibrated cost model and prints how far it is from measurements.

usage: scripts/calibrate/kernel_times.py fit      writes the calibrations of configs/devices.json
       scripts/calibrate/kernel_times.py table    prints the errors on the rows that no fit has seen
       scripts/calibrate/kernel_times.py sums     prints sums of predicted over sums of measured seconds
       scripts/calibrate/kernel_times.py classes  prints the typical error of each class of matrix products
       scripts/calibrate/kernel_times.py layers   prints layers of profiled networks, class by class

Reads the samples of configs/calibration; needs numpy (.venv has it) and predict_samples, made by
`cmake --build build/dev --target predict_samples`: the formula stands in src/cost/kernel.cc alone,
and this script asks that program for every prediction. A new kind of kernel needs an entry in
devices.json, of any constants, before its first fit.

Cards of a generation share the constants that say how the kernels are built (tiles, starts); each
card has its own shares of its peaks. Of matrix products there are rows enough for constants of each
chip. Matrix products are weighed class by class: by how many terms their sums have (k) and
whether they come in batches, so that the long rows of large k do not decide about the others. Within
a class rows weigh by the square root of their time. The sum of each device and kind of kernel is
held, and so is the median error of each class, and a constant that the rows do not decide stays
near its start instead of running to a bound.
"""

import argparse
import collections
import functools
import json
import pathlib
import sys

import numpy as np

from report import Program, classes, layers, product_class, ratios, sums, table

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEVICES = ROOT / "configs/devices.json"
BEGIN, END = "  // Calibrations, written by scripts/calibrate/kernel_times.py.\n", "  // End of the calibrations.\n"

# A constant: where a fit starts, how far it strays where the rows say nothing (a factor), the bounds,
# and whether each card has its own.
Constant = collections.namedtuple("Constant", "name start stray low high own")

# In the order of cluster/calibration.h. `bandwidth_share` is elementwise's: what a product moves, it
# moves like everything else.
#
# Bounds of what starting and ending a tile costs: at worst the result of a tile is written while
# nothing else of its multiprocessor runs. In single precision that takes 25 (A100) to 60 (P4) steps
# of k, and as long again to load the first operands. Tiles of 64 by 64 reach half of what the
# largest reach, or more, which bounds the loss at 64. A launch is 20 us at most.
PRODUCT = [Constant("share", 0.8, 3, 0.02, 1.4, True), Constant("tile_loss", 20, 2, 0.1, 64, False),
           Constant("fill", 30, 2, 1, 120, False),
           Constant("fixed_seconds", 8e-6, 2, 1e-6, 1e-4, False),
           Constant("winograd_share", 0.7, 2, 0.02, 1.4, True),
           Constant("stride_waste", 0.3, 2, 0.01, 1, False)]
ORDER = ["share", "tile_loss", "fill", "bandwidth_share", "fixed_seconds", "winograd_share",
         "stride_waste", "join_seconds", "k_step"]
JOIN_SECONDS = 5e-6  # of the kernel that adds the parts of a split product: a launch
K_STEPS = (1, 32, 64, 128)  # what batched kernels may round k up to
TRAFFIC = [Constant("bandwidth_share", 0.7, 3, 0.01, 1.5, True),
           Constant("fixed_seconds", 8e-6, 3, 1e-6, 5e-4, True)]
WINDOW = Constant("window_share", 0.02, 3, 1e-4, 1, True)
DEPTHWISE = "depthwise_convolution"
NO_TENSOR_CORES = ("P100-PCIE-16GB", "GTX-1080-Ti", "P4")
HUBER = 0.15  # log error beyond which a row counts by its size, no longer by its square
SUM_WEIGHT = 10  # of a group's sum, in roots of its rows
CLASS_WEIGHT = 40  # of a class's median error, however many rows it has

# Devices of a card share its constants; cards of a generation share those that are not their own.
CARDS = {"v100": ["V100-SXM2-16GB", "V100-PCIE-32GB", "V100-PCIE-16GB"], "p100": ["P100-PCIE-16GB"],
         "gtx-1080-ti": ["GTX-1080-Ti"], "p4": ["P4"],
         "t4": ["T4"], "a100": ["A100-SXM4-40GB"], "a100-80": ["A100-SXM4-80GB"], "l4": ["L4"],
         "hopper": ["H100-SXM5-80GB"]}
CHIPS = [["p100"], ["gtx-1080-ti"], ["p4"], ["v100"], ["t4"], ["a100", "a100-80"], ["hopper"], ["l4"]]
GENERATIONS = [["p100", "gtx-1080-ti", "p4"], ["v100"], ["t4"], ["a100", "a100-80", "hopper"],
               ["l4"]]


def minimise(residuals, start, low, high):
    """Levenberg and Marquardt's method within bounds, on the pseudo-Huber loss of the rows and the
    square of the rest: `residuals` returns both, the rows with their weights."""
    def loss(found):
        rows, weights, rest = found
        return np.sum(weights * (np.sqrt(1 + (rows / HUBER) ** 2) - 1)) + np.sum((rest / HUBER) ** 2) / 2

    x, damping = np.array(start, float), 1e-2
    found = residuals(x)
    for _ in range(40):
        columns = []
        for j in range(len(x)):
            step = np.zeros(len(x))
            # Waves make steps: a difference over 2 % of a constant sees past them.
            step[j] = 0.02
            up, down = np.minimum(x + step, high), np.maximum(x - step, low)
            ends = [np.concatenate([part for k, part in enumerate(residuals(end)) if k != 1])
                    for end in (up, down)]
            columns.append((ends[0] - ends[1]) / (up - down)[j])
        jacobian = np.stack(columns, 1)
        rows, weights, rest = found
        weight = np.concatenate([weights / np.sqrt(1 + (rows / HUBER) ** 2), np.ones(len(rest))])
        normal = jacobian.T @ (jacobian * weight[:, None])
        gradient = jacobian.T @ (weight * np.concatenate([rows, rest]))
        gained = 0
        for _ in range(8):
            move = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-9), -gradient)
            candidate = np.clip(x + move, low, high)
            moved = residuals(candidate)
            if loss(moved) < loss(found):
                gained = 1 - loss(moved) / loss(found)
                x, found, damping = candidate, moved, max(damping / 3, 1e-6)
                break
            damping *= 4
        if gained < 1e-4:
            break
    return x, loss(found)


def constants_of(name):
    if name == DEPTHWISE:
        return [Constant("share", 0.03, 3, 1e-3, 1, True)]
    if not name.startswith(("matmul", "convolution")):
        return [*TRAFFIC, WINDOW] if name.startswith("pooling") else TRAFFIC
    found = PRODUCT[:4]
    if name.startswith("matmul"):
        found[3] = found[3]._replace(high=2e-5)
    if name.startswith("convolution") and not name.endswith("half"):
        found.append(PRODUCT[4])
    if name.startswith("convolution_input"):
        found.append(PRODUCT[5])
    return found


def fit(program, rows, cards, name, moving):
    """{card: {constant: value}} of one kind of kernel on the cards of a generation that have rows of
    it, and how many constants there are and how many of them ended at a bound."""
    if name.startswith("matmul"):  # whose constants are a chip's
        parts = [fit_shared(program, rows, chip, name, moving,
                            K_STEPS if has_batches(rows, chip, name) else (1,))
                 for chip in CHIPS if chip[0] in cards]
        found = {card: found for part, _, _ in parts for card, found in part.items()}
        for card in found:
            if not has_batches(rows, [card], name):  # so batches go by the step of the generation
                found[card] |= {"k_step": step for step in
                                {other.get("k_step") for other in found.values()} - {None}}
        return found, *(sum(part[i] for part in parts) for i in (1, 2))
    return fit_shared(program, rows, cards, name, moving, (1,))


def has_batches(rows, chip, name):
    devices = [device for card in chip for device in CARDS[card]]
    return any(row.device in devices and row.constants == name
               and product_class(row).startswith("batched") for row in rows)


def fit_shared(program, rows, cards, name, moving, k_steps):
    seen = {device: [row for row in rows if row.device == device and row.constants == name]
            for card in cards for device in CARDS[card]}
    cards = [card for card in cards if any(seen[device] for device in CARDS[card])]
    if not cards:
        return {}, 0, 0
    constants = constants_of(name)
    slots = [(constant, card) for constant in constants for card in (cards if constant.own else [None])]
    low, high, start = (np.log([getattr(constant, key) for constant, _ in slots])
                        for key in ("low", "high", "start"))
    stray = np.log([constant.stray for constant, _ in slots])

    def values(x, card, k_step):
        found = {constant.name: float(np.exp(value)) for (constant, own), value in zip(slots, x)
                 if own in (None, card)}
        if "fill" in found:
            found |= {"bandwidth_share": moving[card], "join_seconds": JOIN_SECONDS}
        return found | ({"k_step": k_step} if k_step > 1 else {})

    def listed(found):
        keys = ORDER if "fill" in found else ["share"] if name == DEPTHWISE else [
            "bandwidth_share", "fixed_seconds", "window_share"]
        return [found.get(key, key == "k_step") for key in keys]

    def residuals(x, k_step):
        errors, weights, rest = [], [], list(HUBER * (x - start) / stray)
        for card in cards:
            for device in CARDS[card]:
                mine = seen[device]
                if not mine:
                    continue
                predicted = program.predict(device, name, listed(values(x, card, k_step)))
                measured = np.array([row.seconds for row in mine])
                fitted = np.array([not row.held_out for row in mine])
                for group in sorted({row.group for row in mine}):
                    of = fitted & [row.group == group for row in mine]
                    rest.append(SUM_WEIGHT * np.sqrt(of.sum())
                                * np.log(predicted[of].sum() / measured[of].sum()))
                classes = np.array([product_class(row) or row.group for row in mine])
                for kind in sorted(set(classes[fitted])):
                    of = fitted & (classes == kind)
                    root, error = np.sqrt(measured[of]), np.log(predicted[of] / measured[of])
                    errors.append(error)
                    weights.append(root / root.mean())
                    if product_class(mine[0]):
                        rest.append(CLASS_WEIGHT * np.median(error))
        return np.concatenate(errors), np.concatenate(weights), np.array(rest)

    starts = [start]
    if any(constant.name == "fill" for constant in constants):
        # Waves make valleys: begin at several places and keep the best.
        starts = [start + [{"tile_loss": a, "fill": b}.get(constant.name, 0) for constant, _ in slots]
                  for a in (-1, 1) for b in (-1, 1.5)]
    def best(begins, k_steps):
        found = [(*minimise(functools.partial(residuals, k_step=k_step), begin, low, high), k_step)
                 for begin in begins for k_step in k_steps]
        return min(found, key=lambda found: found[1])

    # The step of k by one start, the rest by all of them.
    k_step = best(starts[:1], k_steps)[2] if len(k_steps) > 1 else k_steps[0]
    x, loss, k_step = best(starts, (k_step,))
    bound = sum(min(value - least, most - value) < 1e-3 for value, least, most in zip(x, low, high))
    rounded = {card: {key: float(f"{value:.3g}") for key, value in values(x, card, k_step).items()}
               for card in cards}
    print(name, rounded, f"loss {loss:.1f}", file=sys.stderr)
    return rounded, len(slots), bound


PRODUCTS = ["matmul", "convolution_forward", "convolution_input_gradient",
            "convolution_weight_gradient"]
TRAFFICS = ["elementwise", "reduction", "batch_norm", "batch_norm_backward", "layer_norm", "softmax",
            "pooling", "pooling_backward", "embedding", "copy", "optimizer"]
PIPEDREAM = ["batch_norm", "batch_norm_backward", "pooling", "pooling_backward"]


# Without error correction, which the P4's and the T4's memory run with, GDDR memory reaches more.
GDDR_SHARE = 0.86


def bytes_per_flop(entry):
    return entry["memory_bytes_per_second"] / entry["fp32_flops_per_second"]


def scaled(constants, key, factor):
    return dict(constants, **{key: float(f"{constants[key] * factor:.3g}")})


def traffic(card, fitted, v100, devices):
    """Constants of what moves bytes, and what of them was assumed."""
    own, assumed = {kind: fitted[kind][card] for kind in TRAFFICS if card in fitted.get(kind, {})}, []
    if card == "gtx-1080-ti":
        p4, share = fitted["elementwise"]["p4"], GDDR_SHARE
        for kind in ("elementwise", "layer_norm", "softmax"):
            own[kind] = scaled(fitted[kind]["p4"], "bandwidth_share", share / p4["bandwidth_share"])
        assumed.append(f"elementwise, layer_norm and softmax as on the P4, at {share} of the bandwidth "
                       "for want of error correction")
    if card == "hopper":
        for kind in ("layer_norm", "softmax"):
            own[kind] = scaled(fitted[kind]["a100"], "bandwidth_share", own["elementwise"]["bandwidth_share"]
                               / fitted["elementwise"]["a100"]["bandwidth_share"])
        assumed.append("layer_norm and softmax as on the A100, by the share of elementwise")
    for kind in ("reduction", "copy", "optimizer"):
        own[kind] = own["elementwise"]
    own["embedding"] = own["softmax"]
    assumed.append("reduction, copy and optimizer as elementwise, embedding as softmax")
    scale = own["elementwise"]["bandwidth_share"] / fitted["elementwise"]["v100"]["bandwidth_share"]
    if card != "v100":
        for kind in PIPEDREAM:
            own[kind] = scaled(v100[kind], "bandwidth_share", scale)
        # Depthwise kernels are bound by loads.
        factor = bytes_per_flop(devices[CARDS[card][0]]) / bytes_per_flop(devices["V100-PCIE-16GB"])
        own[DEPTHWISE] = scaled(fitted[DEPTHWISE]["v100"], "share", factor)
        assumed.append("batch norms, pools and depthwise_convolution as on the V100, by bandwidth")
    else:
        own[DEPTHWISE] = fitted[DEPTHWISE][card]
    return own, assumed


# Whose products a card takes where its own were not measured, the first that has them.
LENDERS = {"p4": ["gtx-1080-ti"], "a100": ["a100-80", "v100"], "a100-80": ["a100", "v100"],
           "hopper": ["a100", "v100"], "l4": ["t4"]}


def like(constants, factor):
    found = scaled(constants, "share", factor)
    return scaled(found, "winograd_share", factor) if "winograd_share" in found else found


def products(card, fitted):
    """Constants of products, and what of them was assumed."""
    own, assumed = {}, []
    for name in [name + suffix for suffix in ("", "_half") for name in PRODUCTS]:
        if card in fitted.get(name, {}):
            own[name] = fitted[name][card]
        elif name.endswith("_half") and CARDS[card][0] in NO_TENSOR_CORES:
            own[name] = own[name.removesuffix("_half")]
            assumed.append(f"{name} as in single precision")
        else:
            lender = next(other for other in LENDERS[card] if other in fitted[name])
            # By how matrix products compare, of the same precision where both have been measured.
            half = name.endswith("_half") and {card, lender} <= set(fitted["matmul_half"])
            measure = "matmul_half" if half else "matmul"
            factor = fitted[measure][card]["share"] / fitted[measure][lender]["share"]
            own[name] = like(fitted[name][lender], factor)
            assumed.append(f"{name} as of {lender}, by the share of {measure}")
    return own, assumed


def calibrations(fitted, devices):
    """The list of configs/devices.json."""
    v100, _ = traffic("v100", fitted, None, devices)
    for card, sources in CARDS.items():
        (mine, assumed), (moved, more) = products(card, fitted), traffic(card, fitted, v100, devices)
        yield {"name": card, "source": f"fitted to {' and '.join(sources)} of configs/calibration; "
               + "assumed: " + "; ".join(assumed + more), **mine, **moved}
    names = [product + suffix for suffix in ("", "_half") for product in PRODUCTS]
    # Gaming cards: GDDR6 without error correction.
    t4 = traffic("t4", fitted, v100, devices)[0]
    share = GDDR_SHARE / t4["elementwise"]["bandwidth_share"]
    moved = {kind: scaled(t4[kind], "bandwidth_share", share) for kind in TRAFFICS}
    moved |= {"depthwise_convolution": t4[DEPTHWISE]}
    yield {"name": "rtx-2080-ti", "source": "not measured: products assumed as on the V100 (a "
           "multiprocessor of the same kind, no power limit near), traffic as on the T4 at "
           f"{GDDR_SHARE} of the bandwidth for want of error correction",
           **{kind: "v100" for kind in names}, **moved}
    multiplied = {name: "a100" for name in PRODUCTS}
    for name, constants in products("a100", fitted)[0].items():
        if name.endswith("_half"):
            multiplied[name] = dict(constants, share=GEFORCE_SHARE, **{
                key: float(f"{constants[key] * GEFORCE_LOSS:.3g}") for key in ("tile_loss", "fill")})
    yield {"name": "rtx-30-40", "source": "not measured: products as on the A100, but those on tensor "
           f"cores at {GEFORCE_SHARE} of the peak and with {GEFORCE_LOSS} of the losses, for cores a "
           "third as fast a multiprocessor; traffic as of rtx-2080-ti", **multiplied,
           **{kind: "rtx-2080-ti" for kind in [*TRAFFICS, DEPTHWISE]}}
    multiplied = {name: "a100" for name in PRODUCTS}
    for name, constants in products("a100", fitted)[0].items():
        if name.endswith("_half"):
            multiplied[name] = dict(constants, **{
                key: float(f"{constants[key] * PROFESSIONAL_LOSS:.3g}") for key in ("tile_loss", "fill")})
    yield {"name": "rtx-a6000", "source": "not measured: products as on the A100, but those on tensor "
           f"cores with {PROFESSIONAL_LOSS} of the losses, for cores 0.6 (Ampere) to 0.9 (Ada) as fast a "
           "multiprocessor; traffic as of rtx-2080-ti", **multiplied,
           **{kind: "rtx-2080-ti" for kind in [*TRAFFICS, DEPTHWISE]}}
    yield {"name": "a40", "source": "not measured: products as of rtx-a6000, traffic as on the T4, whose "
           "GDDR6 corrects errors, too", **{kind: "rtx-a6000" for kind in names},
           **{kind: "t4" for kind in [*TRAFFICS, DEPTHWISE]}}
    ti = products("gtx-1080-ti", fitted)[0]
    yield {"name": "titan-x-maxwell", "source": f"not measured: products as on the GTX 1080 Ti, times "
           f"{MAXWELL} by whole steps of the TITAN X, traffic as there",
           **{kind: like(constants, MAXWELL) for kind, constants in ti.items()},
           **{kind: "gtx-1080-ti" for kind in [*TRAFFICS, DEPTHWISE]}}
    product = {"share": 0.7, "tile_loss": 0, "fill": 0, "bandwidth_share": 0.7, "fixed_seconds": 2e-6}
    round_figures = {"bandwidth_share": 0.6, "fixed_seconds": 2e-6}
    yield {"name": "cpu", "source": "not measured: round figures, to be overridden by a profile",
           **{kind: product for kind in names}, **{kind: round_figures for kind in TRAFFICS},
           DEPTHWISE: {"share": 0.05}}


MAXWELL = 0.9
GEFORCE_SHARE, GEFORCE_LOSS = 0.9, 0.35
PROFESSIONAL_LOSS = 0.75  # of RTX A6000, A10, A40, L40S


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


def fit_all(program, rows):
    """{constants: {card: {constant: value}}}: traffic first, whose bandwidth products move at."""
    fitted, count, bounded = {}, 0, 0
    moving = {}
    names = sorted({row.constants for row in rows}, key=lambda name: (name != "elementwise", name))
    for name in names:
        for generation in GENERATIONS:
            found, constants, bound = fit(program, rows, generation, name, moving)
            fitted.setdefault(name, {}).update(found)
            count, bounded = count + constants, bounded + bound
        if name == "elementwise":
            moving = {card: fitted[name].get(card, fitted[name]["p4"])["bandwidth_share"] for card in CARDS}
    print(f"{count} constants, {bounded} of them at a bound")
    return fitted


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["fit", "table", "sums", "classes", "layers"])
    parser.add_argument("--program", default=str(ROOT / "build/dev/bin/predict_samples"))
    arguments = parser.parse_args()
    program = Program(arguments.program)
    if arguments.what == "layers":
        print("\n".join(layers(program)))
        return
    rows = program.rows()
    if arguments.what == "table":
        print("\n".join([*table(rows), "", *ratios(rows)]))
    elif arguments.what == "sums":
        print("\n".join(sums(rows)))
    elif arguments.what == "classes":
        print("\n".join(classes(rows)))
    else:
        write(calibrations(fit_all(program, rows), device_entries()))


def entries(kind):
    """{name: entry} of the data base, whose comments JSON does not know."""
    text = "\n".join(line for line in DEVICES.read_text().splitlines()
                     if not line.lstrip().startswith("//"))
    return {entry["name"]: entry for entry in json.loads(text)[kind]}


def device_entries():
    return entries("devices")


def calibration_entries():
    return entries("calibrations")


if __name__ == "__main__":
    main()
