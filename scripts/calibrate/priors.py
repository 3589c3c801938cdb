#!/usr/bin/env python3
"""Estimates by how much operators and links are off, class by class, and judges priors made of that.

usage: scripts/calibrate/priors.py operators  prints how far classes are off, and the variance components
       scripts/calibrate/priors.py judge      prints how well priors predict operators that were not measured
       scripts/calibrate/priors.py links      prints how far links are off

Reads configs/calibration and asks predict_samples and print_all_reduce (`cmake --build build/dev --target
predict_samples print_all_reduce`) for what is believed. Needs numpy (.venv has it). src/cost/class_ratios.cc
and src/cost/fitted_links.cc hold what came of it, docs/tuning.md the tables.

An operator i of class c on card t is off by r = log(measured / predicted). The model is nested:

    r_tci = a_t + b_tc + e_tci,   of variances type, class and operator

Moments of the unweighted means of cells estimate them (F. Yates, 1934; Searle, Casella and McCulloch,
Variance Components, 1992). With R_tc, s²_tc, n_tc of a cell (a class of a card), C_t cells of a card and M_t
the mean of their R_tc:

    operator  the mean of s²_tc over cells
    class     Σ_t Σ_c (R_tc − M_t)² / Σ_t (C_t − 1), less the mean of operator / n_tc
    type      the mean of M_t², less that of (class + the mean of operator / n_tc) / C_t

A cell counts alike whatever its rows, as it does in the fit. Deviations in brackets are of the jackknife,
which leaves out a card. Three sets of rows answer different questions:

    held out  cards that constants were fitted to, by rows that the fit has not seen. The fit holds the sums
              of classes at what was measured, so classes and cards are off by nearly nothing.
    software  such cards under a framework that no constant was fitted to: convolutions under TensorFlow 1,
              layers of PipeDream's networks.
    borrowed  cards with the constants of another chip (BORROWED), as most cards of configs/devices.json
              have them; their own are not used. What a generation shares (tiles of convolutions) saw the
              rows of Pascal's cards all the same.

The prior is of `borrowed`: in it nothing was held at what was measured, and most users' cards are such.
`judge` leaves out the card that it predicts.

Columns called robust are 1.4826 times the median distance from the median (of links: from 0), which is the
deviation where errors are normal.
"""

import argparse
import collections
import csv
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np

from links import PEERS
from report import Row

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEVICES = ROOT / "configs/devices.json"
SAMPLES = ROOT / "configs/calibration"
# Whose constants a card would have, had it not been measured: those of the chip most like it.
BORROWED = {"P100-PCIE-16GB": "gtx-1080-ti", "GTX-1080-Ti": "p100", "P4": "p100", "V100-SXM2-16GB": "t4",
            "V100-PCIE-32GB": "t4", "V100-PCIE-16GB": "t4", "T4": "v100", "A100-SXM4-40GB": "v100",
            "A100-SXM4-80GB": "v100", "H100-SXM5-80GB": "a100", "L4": "a40"}  # fmt: skip
# What PipeDream alone measured, on the V100: constants of other chips are made of it.
ONE_CARD = ("batch_norm", "batch_norm_backward", "pooling", "pooling_backward", "depthwise_convolution")
LONG = 1e-4  # seconds, from which on launches hardly show
LARGE = 10_000_000  # bytes of an all-reduce that bandwidth decides
NUMBERS = (0, 1, 3, 10)  # of measured operators, in judge
DRAWS = 300  # of each number, for each card


def card_of(device):
    return "V100" if device.startswith("V100") else device


def class_of(group):
    """The OpClass of src/cluster/cluster.h."""
    if group.startswith("convolution"):
        return "convolution_3x3" if group.endswith("_3x3") and "half" not in group else "convolution"
    for name, prefixes in {"matmul": "matmul", "normalization": ("batch_norm", "layer_norm"),
                           "pooling": "pooling", "depthwise": "depthwise"}.items():  # fmt: skip
        if group.startswith(prefixes):
            return name
    return group


def predicted(program, devices, folder, command="rows"):
    done = subprocess.run([program, devices, folder], input=command + "\n", text=True, check=True,
                          stdout=subprocess.PIPE)  # fmt: skip
    return [line.split() for line in done.stdout.splitlines() if line]


def rows(program, devices=DEVICES, folder=SAMPLES):
    return [Row(*words[:5], words[5] == "1", *map(float, words[6:]))
            for words in predicted(program, devices, folder)]  # fmt: skip


def borrowing(folder):
    """The data base of devices with BORROWED."""
    text = DEVICES.read_text()
    for device, lender in BORROWED.items():
        begin = text.index(f'{{"name": "{device}",\n     "source"', text.index('  "devices": ['))
        text = text[:begin] + re.sub(r'"calibration": "[^"]*"', f'"calibration": "{lender}"', text[begin:], count=1)
    path = pathlib.Path(folder) / "devices.json"
    path.write_text(text)
    return path


def tensorflow(program, folder):
    """The rows of convolution_tensorflow.csv."""
    folder = pathlib.Path(folder)
    (folder / "convolution.csv").write_bytes((SAMPLES / "convolution_tensorflow.csv").read_bytes())
    for name in ("matmul.csv", "traffic.csv"):
        (folder / name).write_text((SAMPLES / name).open().readline())
    return rows(program, folder=folder)


# Layers of PipeDream that no fit has seen, norms and pools are rows of one. Under so many seconds much is what
# the profiler adds.
LAYERS = {"convolution": "convolution", "relu": "elementwise", "add_relu": "elementwise"}
LAYER_SECONDS = 3e-4


def sets(program, least=0.0):
    """{set: {(card, class): logarithms of measured over predicted}}, of rows of so many seconds."""
    found = {name: collections.defaultdict(list) for name in ("held out", "software", "borrowed")}

    def add(name, row):
        if row.calibrated < least:  # what was measured would keep the short ones that were delayed
            return
        found[name][card_of(row.device), class_of(row.group)].append(np.log(row.seconds / row.calibrated))

    for row in rows(program):
        if row.held_out:
            add("held out", row)
    with tempfile.TemporaryDirectory() as folder:
        for row in rows(program, borrowing(folder)):
            if row.group not in ONE_CARD:
                add("borrowed", row)
        for row in tensorflow(program, folder):
            # The M60 has the constants of the TITAN X, which are those of the 1080 Ti, scaled.
            add("borrowed" if row.device == "M60" else "software", row)
    for _, kind, _, count, measured, ours in predicted(program, DEVICES, SAMPLES, "layers"):
        if kind in LAYERS and float(ours) > LAYER_SECONDS * float(count):
            found["software"]["V100, PipeDream", LAYERS[kind]].append(np.log(float(measured) / float(ours)))
    return {name: {key: np.array(values) for key, values in sorted(cells.items())}
            for name, cells in found.items()}  # fmt: skip


def by_card(cells):
    cards = collections.defaultdict(dict)
    for (card, op_class), values in cells.items():
        cards[card][op_class] = values
    return cards


def components(cards):
    """(type, class, operator): variances, by the moments above."""
    operator = np.mean([values.var(ddof=1) for cells in cards.values() for values in cells.values() if len(values) > 1])
    squares, freedom, noise, of_types = 0.0, 0, [], []
    for cells in cards.values():
        means = np.array([values.mean() for values in cells.values()])
        of_means = np.mean([operator / len(values) for values in cells.values()])
        squares += ((means - means.mean()) ** 2).sum()
        freedom += len(means) - 1
        noise += [of_means] * (len(means) - 1)
        of_types.append((means.mean(), len(means), of_means))
    of_class = max(0.0, squares / freedom - np.mean(noise))
    of_type = np.mean([mean**2 - (of_class + of_means) / count for mean, count, of_means in of_types])
    return max(0.0, of_type), of_class, operator


def ratios(found):
    """λ of classes, and of the type."""
    of_type, of_class, operator = found
    return operator / of_class, of_class / of_type


def leaving_out(cards, of):
    """What `of` says of the components without one of the cards: a row for each quantity."""
    return np.array([of(components({name: cells for name, cells in cards.items() if name != out}))
                     for out in cards]).T  # fmt: skip


def jackknife(estimates):
    """The deviation of an estimate, by what it is without one part of the data each."""
    return np.sqrt((len(estimates) - 1) * np.var(estimates))


def operators(program):
    longer = sets(program, LONG)
    for name, cells in sets(program).items():
        cards = by_card(cells)
        yield f"\n{name}\n{'card':16} {'class':22} {'rows':>5} {'mean':>7} {'deviation':>10} {'median':>7} {'robust':>7}"
        for (card, op_class), values in cells.items():
            middle = np.median(values)
            yield (f"{card:16} {op_class:22} {len(values):5} {values.mean():+7.3f} {values.std(ddof=1):10.3f} "
                   f"{middle:+7.3f} {1.4826 * np.median(np.abs(values - middle)):7.3f}")  # fmt: skip
        yield f"\n{'class':22} {'cards':>5} {'mean':>7} {'its error':>10} {'median':>7}"
        for op_class in sorted({key[1] for key in cells}):
            means = np.array([values.mean() for key, values in cells.items() if key[1] == op_class])
            if len(means) > 2:
                error = means.std(ddof=1) / np.sqrt(len(means))
                medians = [np.median(values) for key, values in cells.items() if key[1] == op_class]
                far = "  over 2 errors from 0" if abs(means.mean()) > 2 * error else ""
                yield (f"{op_class:22} {len(means):5} {means.mean():+7.3f} {error:10.3f} "
                       f"{np.median(medians):+7.3f}{far}")  # fmt: skip
        if name == "software":
            continue  # too few classes of a card
        without = np.sqrt(components(by_card(longer[name])))
        yield (f"\nroots of the variances, of rows of {1e3 * LONG:g} ms and more: "
               + ", ".join(f"{part} {value:.3f}" for part, value in zip(("type", "class", "operator"), without)))  # fmt: skip
        found = np.sqrt(components(cards))
        errors = map(jackknife, leaving_out(cards, np.sqrt))
        yield "roots of the variances: " + ", ".join(
            f"{part} {value:.3f} ({error:.3f})" for part, value, error in zip(("type", "class", "operator"), found, errors)
        )
        if min(found) > 0:
            yield ("ratios of the variances, and without one of the cards: "
                   + ", ".join(f"{part} {value:.2f} ({min(without):.2f} to {max(without):.2f})"
                               for part, value, without in zip(("operator / class", "class / type"),
                                                               ratios(components(cards)), leaving_out(cards, ratios))))  # fmt: skip


def shrunk(counts, sums, of_operator, of_class):
    """x of src/cost/class_ratios.h: of_operator is λ_class, by class, and of_class λ_type."""
    weights = counts / (counts + of_operator)
    means = sums / np.maximum(counts, 1)
    middle = (weights * means).sum() / (weights.sum() + of_class)
    return (sums + of_operator * middle) / (counts + of_operator)


def alike_by_class(counts, sums):
    """λ = 1, where every class that was measured counts alike for its type."""
    seen = counts > 0
    middle = (sums[seen] / counts[seen]).sum() / (seen.sum() + 1)
    return (sums + middle) / (counts + 1)


def priors(others, names):
    """{prior: what it says of each class, by counts and sums}, made of the cards in `others`."""
    found = components(others)
    _, of_class, operator = found
    alike = ratios(found)
    each = np.array([np.mean([cells[name].var(ddof=1) for cells in others.values() if name in cells] or [operator])
                     for name in names])  # fmt: skip
    bias = np.array([np.mean([cells[name].mean() for cells in others.values() if name in cells] or [0])
                     for name in names])  # fmt: skip
    return {
        "believed": lambda counts, sums: 0 * sums,
        "λ = 1, classes alike": alike_by_class,
        "λ = 1": lambda counts, sums: shrunk(counts, sums, 1, 1),
        "fitted": lambda counts, sums: shrunk(counts, sums, *alike),
        "fitted, by class": lambda counts, sums: shrunk(counts, sums, each / of_class, alike[1]),
        "fitted, with means": lambda counts, sums: bias + shrunk(counts, sums - counts * bias, *alike),
    }


def errors_of(cells, names, said, number, rng):
    """{prior: (mean square of all other operators, of those whose class was measured, of the rest)}: means over
    DRAWS of `number` operators, each of a class that is drawn first; classes count alike."""
    total = {name: np.zeros(3) for name in said}
    present = [i for i, name in enumerate(names) if name in cells]
    values = [cells.get(name, np.zeros(0)) for name in names]
    drawn_of = np.zeros(3)
    for _ in range(DRAWS):
        taken = [set() for _ in names]
        for _ in range(number):
            op_class = rng.choice(present)
            left = [i for i in range(len(values[op_class])) if i not in taken[op_class]]
            taken[op_class].add(rng.choice(left))
        counts = np.array([len(one) for one in taken], float)
        sums = np.array([values[i][list(one)].sum() if one else 0.0 for i, one in enumerate(taken)])
        rest = {i: np.delete(values[i], list(taken[i])) for i in present}
        rest = {i: left for i, left in rest.items() if len(left)}
        chosen = [list(rest), [i for i in rest if counts[i]], [i for i in rest if not counts[i]]]
        drawn_of += [bool(part) for part in chosen]
        for name, rule in said.items():
            x = rule(counts, sums)
            squares = {i: ((left - x[i]) ** 2).mean() for i, left in rest.items()}
            total[name] += [np.mean([squares[i] for i in part]) if part else 0 for part in chosen]
    return {name: sums / np.maximum(drawn_of, 1) for name, sums in total.items()}


def judge(program):
    found = sets(program)
    prior_cards = by_card(found["borrowed"])
    for name, cells in found.items():
        cards = by_card(cells)
        names = sorted({key[1] for key in cells})
        yield (f"\n{name}: root of the mean square of log errors; in brackets of classes that were measured, and of "
               f"others\n{'prior':22}" + "".join(f"{f'{number} measured':>24}" for number in NUMBERS))  # fmt: skip
        lines = collections.defaultdict(list)
        for number in NUMBERS:
            squares = collections.defaultdict(list)
            for card, of_card in cards.items():
                others = {other: cells for other, cells in prior_cards.items() if other != card.split(",")[0]}
                # The same draws for all priors, and whatever else is judged.
                rng = np.random.default_rng([number, *card.encode()])
                for prior, mean in errors_of(of_card, names, priors(others, names), number, rng).items():
                    squares[prior].append(mean)
            for prior, means in squares.items():
                root = [np.sqrt(np.mean([mean[i] for mean in means if mean[i] > 0] or [np.nan])) for i in range(3)]
                lines[prior].append(f"{root[0]:9.3f} ({root[1]:.3f}, {root[2]:.3f})" if number else f"{root[0]:9.3f}")
        for prior, cells_of_line in lines.items():
            yield f"{prior:22}" + "".join(f"{cell:>24}" for cell in cells_of_line)


def group_of(link):
    return "PCIe" if link.startswith("pcie") else "NVLink" if link.startswith("nvlink") else "network"


def deepbench_links(program):
    """(link, system, log of measured over believed bandwidth) of the systems of all_reduce.csv: the median over
    what NCCL took for LARGE bytes and more."""
    done = subprocess.run([program, ROOT / "configs/links.json", SAMPLES / "all_reduce.csv"], text=True, check=True,
                          stdout=subprocess.PIPE)  # fmt: skip
    systems = collections.defaultdict(list)
    for line in done.stdout.splitlines():
        device, count, machines, size, algorithm, _, measured, ours = line.split(",")
        peers = device in PEERS
        link = (("infiniband-fdr" if peers else "infiniband-fdr-staged") if int(machines) > 1 else "pcie3-sockets"
                if not peers else "pcie3-across-switches" if int(count) == 8 else "pcie3")  # fmt: skip
        if int(size) >= LARGE and algorithm.startswith("NCCL"):
            systems[link, f"{count} {device}"].append(-np.log(float(measured) / float(ours)))
    for (link, system), values in sorted(systems.items()):
        yield link, system, float(np.median(values))


def links(program):
    text = re.sub(r"^\s*//.*$", "", (ROOT / "configs/links.json").read_text(), flags=re.MULTILINE)
    believed = {kind["name"]: 1e-9 * kind["bandwidth_bytes_per_second"] for kind in json.loads(text)["links"]}
    with open(SAMPLES / "links.csv") as file:
        stated = [(row["link"], row["source"], float(np.log(float(row["gigabytes_per_second"]) / believed[row["link"]])))
                  for row in csv.DictReader(file)]  # fmt: skip
    yield "Logarithms of achieved over believed bandwidth"
    for title, rows_of in (("systems of DeepBench, to which links.json is fitted", deepbench_links(program)),
                           ("figures of configs/calibration/links.csv", stated)):  # fmt: skip
        by_group = collections.defaultdict(list)
        yield f"\n{title}"
        for link, source, value in rows_of:
            by_group[group_of(link)].append(value)
            by_group["all"].append(value)
            yield f"{link:22} {value:+.3f}  {source}"
        yield f"\n{'':10} {'figures':>7} {'mean':>7} {'root of the mean square':>24} {'robust':>7}"
        for group, values in sorted(by_group.items(), key=lambda item: item[0] == "all"):
            values = np.array(values)
            root = np.sqrt((values**2).mean())
            error = jackknife([np.sqrt(np.delete(values**2, i).mean()) for i in range(len(values))])
            yield (f"{group:10} {len(values):7} {values.mean():+7.3f} {f'{root:.3f} ({error:.3f})':>24} "
                   f"{1.4826 * np.median(np.abs(values)):7.3f}")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["operators", "judge", "links"])
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/dev/bin",
                        help="folder of predict_samples and print_all_reduce")  # fmt: skip
    arguments = parser.parse_args()
    if arguments.what == "operators":
        print("\n".join(operators(arguments.programs / "predict_samples")))
    elif arguments.what == "judge":
        print("\n".join(judge(arguments.programs / "predict_samples")))
    else:
        print("\n".join(links(arguments.programs / "print_all_reduce")))


if __name__ == "__main__":
    main()
