#!/usr/bin/env python3
"""Fits the links of DeepBench's machines to its all-reduce times, and prints how far the model is.

usage: scripts/calibrate/links.py fit      prints the constants beside those of configs/links.json
       scripts/calibrate/links.py table    prints the error on each row
       scripts/calibrate/links.py curves   prints times by size, for each kind of link

Reads configs/calibration/all_reduce.csv (DeepBench, Apache-2.0: the fastest of several libraries
for each system, number of GPUs and size). `fit` needs numpy. `table` asks print_all_reduce, so the
C++ formula, and builds it in build/dev if --program names no other.

A ring of n takes launch + 2(n-1) * latency + 2(n-1)/n * bytes / bandwidth. One launch for all; a
latency and a bandwidth a kind of link. Fitted to the rows of NCCL, every fifth row held out, by
least absolute relative error.

`curves` takes 8 GPUs: in one machine for kinds of fabric, in 2 machines of 4 (pcie3 inside) for
kinds of network card.
"""

import argparse
import csv
import json
import pathlib
import re
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINKS = ROOT / "configs/links.json"
SAMPLES = ROOT / "configs/calibration/all_reduce.csv"
PEERS = ("GTX-1080-Ti", "TITAN-X-Pascal")  # boxes whose cards reach each other's memory
NETWORK_SECONDS = 3e-6  # of the switch; the rest of a hop is the two cards'

# constant -> the kind and field of links.json that holds it, and how much of it.
CONSTANTS = {
    "launch": ("pcie3", "launch_seconds"),
    "latency": ("pcie3", "latency_seconds"),
    "latency, staged": ("pcie3-sockets", "latency_seconds"),
    "latency, between machines": ("infiniband-fdr", "latency_seconds"),
    "bandwidth": ("pcie3", "bandwidth_bytes_per_second"),
    "bandwidth, across switches": ("pcie3-across-switches", "bandwidth_bytes_per_second"),
    "bandwidth, staged": ("pcie3-sockets", "bandwidth_bytes_per_second"),
    "bandwidth, between machines": ("infiniband-fdr", "bandwidth_bytes_per_second"),
    "bandwidth, between, staged": ("infiniband-fdr-staged", "bandwidth_bytes_per_second"),
}


def features(row):
    """What each constant (bandwidths: their inverse) is multiplied by."""
    n, peers = int(row["devices"]), row["device"] in PEERS
    values = dict.fromkeys(CONSTANTS, 0.0)
    if n > 8:
        latency = "latency, between machines"
        bandwidth = "bandwidth, between machines" if peers else "bandwidth, between, staged"
    elif peers:
        latency, bandwidth = "latency", "bandwidth" if n < 8 else "bandwidth, across switches"
    else:
        latency, bandwidth = "latency, staged", "bandwidth, staged"
    values["launch"] = 1
    values[latency] = 2 * (n - 1)
    values[bandwidth] = 2 * (n - 1) / n * int(row["bytes"])
    return list(values.values())


def fit():
    import numpy as np

    with open(SAMPLES) as file:
        rows = list(csv.DictReader(file))
    used = [r for i, r in enumerate(rows) if i % 5 != 4 and r["algorithm"].startswith("NCCL")]
    a = np.array([np.array(features(r)) / float(r["seconds"]) for r in used])
    scale, weight = np.abs(a).max(0), np.ones(len(used))
    for _ in range(200):  # reweighted least squares: absolute errors
        scaled = a / scale * weight[:, None]
        x = np.linalg.lstsq(scaled, weight, rcond=None)[0] / scale
        weight = 1 / np.sqrt(np.maximum(np.abs(a @ x - 1), 1e-3))
    text = re.sub(r"^\s*//.*$", "", LINKS.read_text(), flags=re.MULTILINE)
    kinds = {kind["name"]: kind for kind in json.loads(text)["links"]}
    print(f"{'constant':30} {'fitted':>10} {'links.json':>11}")
    for (name, (kind, field)), value in zip(CONSTANTS.items(), x):
        stored = kinds[kind][field]
        if name == "latency, between machines":
            value = (value - NETWORK_SECONDS) / 2
        if name.startswith("bandwidth"):
            print(f"{name:30} {1e-9 / value:7.2f} GB/s {1e-9 * stored:6.2f} GB/s")
        else:
            print(f"{name:30} {1e6 * value:8.1f} us {1e6 * stored:8.1f} us")


def built(program, name):
    if program:
        return program
    subprocess.run(["cmake", "--build", str(ROOT / "build/dev"), "--target", name],
                   check=True, stdout=subprocess.DEVNULL)
    return ROOT / "build/dev/bin" / name


def curves(program):
    text = subprocess.run([built(program, "print_link_curves"), LINKS], check=True,
                          capture_output=True, text=True)
    times = {}
    for line in text.stdout.splitlines():
        kind, operation, size, seconds = line.split(",")
        times[kind, operation, int(size)] = float(seconds)
    sizes = sorted({key[2] for key in times})
    for operation in dict.fromkeys(key[1] for key in times):
        print(f"\n{operation}: us (GB/s)\n")
        print("| link | " + " | ".join(f"{size / 1e3:g} KB" for size in sizes) + " |")
        print("|---" * (1 + len(sizes)) + "|")
        for kind in dict.fromkeys(key[0] for key in times if key[1] == operation):
            row = [(size, times[kind, operation, size]) for size in sizes]
            print(f"| {kind} | " + " | ".join(f"{1e6 * t:.0f} ({1e-9 * size / t:.2f})"
                                              for size, t in row) + " |")


def table(program):
    program = built(program, "print_all_reduce")
    text = subprocess.run([program, LINKS, SAMPLES], check=True, capture_output=True, text=True)
    rows = []
    for line in text.stdout.splitlines():
        device, n, machines, size, algorithm, held, measured, predicted = line.split(",")
        rows.append((device, int(n), int(machines), int(size), algorithm.startswith("NCCL"),
                     held == "1", float(measured), float(predicted)))
    sizes = sorted({r[3] for r in rows})
    print("Error of the predicted time in percent. * another library than NCCL, h held out.\n")
    print(f"| {'GPUs':25} | " + " | ".join(f"{s / 1e6:7.1f} MB" for s in sizes) + " |")
    print("|---" * (1 + len(sizes)) + "|")
    for device, n, machines in dict.fromkeys(r[:3] for r in rows):
        cells = []
        for size in sizes:
            for r in rows:
                if r[:4] == (device, n, machines, size):
                    mark = ("" if r[4] else "*") + ("h" if r[5] else "")
                    cells.append(f"{100 * (r[7] / r[6] - 1):+8.1f}{mark:2}")
        label = f"{n} {device}" + (f" in {machines}" if machines > 1 else "")
        print(f"| {label:25} | " + " | ".join(cells) + " |")

    def summary(name, chosen):
        errors = [100 * abs(r[7] / r[6] - 1) for r in rows if chosen(r)]
        print(f"| {name:40} | {len(errors):4} | {statistics.median(errors):6.1f} "
              f"| {statistics.mean(errors):6.1f} | {max(errors):6.1f} |")

    print(f"\n| {'rows':40} | rows | median |   mean |    max |\n|---|---|---|---|---|")
    summary("NCCL, fitted", lambda r: r[4] and not r[5])
    summary("NCCL, held out", lambda r: r[4] and r[5])
    summary("all, held out", lambda r: r[5])
    summary("NCCL, 400 KB", lambda r: r[4] and r[3] == 400000)
    summary("NCCL, one machine", lambda r: r[4] and r[2] == 1)
    summary("NCCL, several machines", lambda r: r[4] and r[2] > 1)
    summary("other libraries (never fitted)", lambda r: not r[4])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["fit", "table", "curves"])
    parser.add_argument("--program", help="print_all_reduce (table) or print_link_curves (curves), "
                        "if not that of build/dev")
    arguments = parser.parse_args()
    if arguments.action == "fit":
        fit()
    elif arguments.action == "table":
        table(arguments.program)
    else:
        curves(arguments.program)


if __name__ == "__main__":
    main()
