#!/usr/bin/env python3
"""Prints the shares of peak of the plain roofline in configs/devices.json from public measurements.

usage: scripts/calibrate/efficiencies.py DATA

DATA holds deepbench/{gemm,conv}.csv (Baidu DeepBench, Apache-2.0), neusight/*.csv.gz (NeuSight, MIT)
and pipedream/nasnetalarge.graph.txt (PipeDream, MIT). Standard library only. The model that is
fitted is the one of src/cost/roofline.cc:

  seconds = max((flop + ramp) / (peak * share), bytes / (bandwidth * elementwise share)) + launch
"""

import csv
import glob
import gzip
import math
import re
import statistics
import sys

# Dense fp32 peak (FLOP/s) and bandwidth (B/s) of the cards that were measured.
CARDS = {
    "V100": (15.7e12, 900e9),  # DeepBench measured the SXM2 card; NeuSight the PCIe one
    "P100": (9.3e12, 732e9),
    "1080Ti": (11.3e12, 484e9),
    "T4": (8.1e12, 320e9),
    "TitanX": (6.7e12, 336e9),
    "TitanX_Pascal": (11.0e12, 480e9),
    "A100": (19.5e12, 1555e9),
    "P4": (5.5e12, 192e9),
}
LAUNCH = 5e-6  # back-to-back launches, the floor of the small DeepBench rows
LARGE = 100e6  # bytes: far above every cache


def rows(path):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt") as file:
        yield from csv.DictReader(file)


def bandwidth_share(data, card, ops, passes):
    """Median share of peak bandwidth of `ops` that move `passes` tensors."""
    shares = []
    for op in ops:
        for path in glob.glob(f"{data}/neusight/{op}_*{card}*.csv.gz"):
            for row in rows(path):
                moved = 4 * int(row["B"]) * int(row["H"]) * passes
                if moved > LARGE:
                    shares.append(moved / (float(row["Latency"]) * 1e-3) / CARDS[card][1])
    return statistics.median(shares) if shares else None


def gemms(data, card):
    """(flop, bytes, seconds) of fp32 matrix products."""
    for row in rows(f"{data}/deepbench/gemm.csv"):
        if row["gpu"] == card and row["precision"] == "fp32" and row["ms"]:
            m, n, k = int(row["M"]), int(row["N"]), int(row["K"])
            yield 2 * m * n * k, 4 * (m * n + n * k + m * k), float(row["ms"]) * 1e-3
    for path in glob.glob(f"{data}/neusight/linear_*{card}*.csv.gz") if card == "A100" else []:
        for row in rows(path):
            b, m, n, k = (int(row[key]) for key in ("B", "M", "N", "K"))
            yield 2 * b * m * n * k, 4 * (b * m * n + n * k + b * m * k), float(row["Latency"]) * 1e-3


def convolutions(data, card, kind):
    """(flop, bytes, seconds) of each pass of fp32 convolutions; kind "3x3": those with 3x3 kernels
    at stride 1, where libraries save multiplications (Winograd); "other"; "all"."""
    for row in rows(f"{data}/deepbench/conv.csv"):
        if row["gpu"] != card or row["precision"] != "fp32":
            continue
        keys = "W H C N Kout filt_w filt_h pad_w pad_h stride_w stride_h".split()
        w, h, c, n, k, fw, fh, pw, ph, sw, sh = (int(float(row[key])) for key in keys)
        # Sizes are computed here: the sheets of asymmetric filters have them wrong.
        ow, oh = (w + 2 * pw - fw) // sw + 1, (h + 2 * ph - fh) // sh + 1
        flop = 2 * n * k * ow * oh * c * fw * fh
        moved = 4 * (n * c * w * h + n * k * ow * oh + c * k * fw * fh)
        for key in ("fwd_ms", "bwd_input_ms", "bwd_weight_ms"):
            try:
                seconds = float(row[key]) * 1e-3
            except ValueError:
                continue
            # The first layer of a network needs no gradient of its input, and 1 or 3 channels
            # make kernels that no other layer has.
            three = fw == fh == 3 and sw == sh == 1
            if seconds > 0 and c > 3 and kind in ("all", "3x3" if three else "other"):
                yield flop, moved, seconds
    for path in glob.glob(f"{data}/neusight/conv_*{card}*.csv.gz") if card == "A100" else []:
        for row in rows(path):
            keys = "B Input_Channel Output_Channel Kernel_Szie Input_Size Stride Padding".split()
            b, c, o, k, size, stride, padding = (int(row[key]) for key in keys)
            out = (size + 2 * padding - k) // stride + 1
            if kind not in ("all", "3x3" if k == 3 and stride == 1 else "other"):
                continue
            yield (2 * b * c * o * k * k * out * out,
                   4 * (b * c * size * size + b * o * out * out + c * o * k * k),
                   float(row["Latency"]) * 1e-3)


def fit(samples, peak, bandwidth, ramp):
    """Share that gives a median error of 0 for rows that arithmetic bounds, and the mean
    |log error| of all rows."""
    ratios = []
    for flop, moved, seconds in samples:
        busy = max(seconds - LAUNCH, 1e-6)
        if moved / bandwidth < 0.7 * busy:
            ratios.append((flop + ramp) / peak / busy)
    share = statistics.median(ratios)
    errors = [abs(math.log((max((flop + ramp) / (peak * share), moved / bandwidth) + LAUNCH) / t))
              for flop, moved, t in samples]
    return share, statistics.mean(errors)


def depthwise_share(data):
    """NASNet-A large and mobile, batch 128, on a V100: share of arithmetic peak over the three
    passes of a layer."""
    pattern = re.compile(
        r"Conv2d\((\d+), \d+, kernel_size=\((\d+), \d+\).*groups=(\d+).*"
        r"forward_compute_time=([\d.]+), backward_compute_time=([\d.]+), activation_size=([\d.]+)")
    host = 0.28  # ms that the profile adds to every forward pass: its shortest ones take that
    shares = []
    for name in ("nasnetalarge", "nasnetamobile"):
        for line in open(f"{data}/pipedream/{name}.graph.txt"):
            match = pattern.search(line)
            if not match or match[1] != match[3]:
                continue
            kernel, forward, backward, size = (float(match[i]) for i in (2, 4, 5, 6))
            if backward < 0.15:
                continue
            flop = 2 * kernel * kernel * size / 4
            seconds = (max(forward - host, 0.02) + backward) * 1e-3
            shares.append(3 * flop / seconds / CARDS["V100"][0])
    return statistics.median(shares), len(shares)


def tensor_core_share(data, card, peak):
    """Half precision matrix products of over 10 GFLOP."""
    return statistics.median(
        2 * int(row["M"]) * int(row["N"]) * int(row["K"]) / (float(row["ms"]) * 1e-3) / peak
        for row in rows(f"{data}/deepbench/gemm.csv")
        if row["gpu"] == card and row["precision"] == "fp16_tensorcore" and row["ms"]
        and 2 * int(row["M"]) * int(row["N"]) * int(row["K"]) > 1e10)


def large_convolutions(data, card):
    """Median and ninth decile of TFLOP/s of forward convolutions of over 30 GFLOP."""
    rates = [flop / seconds / 1e12 for flop, _, seconds in convolutions(data, card, "all") if flop > 3e10]
    return statistics.median(rates), statistics.quantiles(rates, n=10)[8]


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    data = sys.argv[1]
    print("share of peak         matmul  conv 3x3  other   ramp MFLOP  |log err| gemm  3x3 other"
          "   elementwise  normalization  softmax")
    for card, (peak, bandwidth) in CARDS.items():
        if card == "P4":
            continue
        elementwise = bandwidth_share(data, card, ("add", "mul", "div"), 3)
        # Normalisation is counted as two reads and a write (src/cost/op_work.cc).
        normalization = bandwidth_share(data, card, ("ln",), 3)
        softmax = bandwidth_share(data, card, ("softmax",), 2)
        # GDDR cards without figures of their own: what the T4's reach.
        achieved = bandwidth * (elementwise or bandwidth_share(data, "T4", ("add", "mul", "div"), 3))
        samples = [list(gemms(data, card)), list(convolutions(data, card, "3x3")),
                   list(convolutions(data, card, "other"))]
        samples = [kind or samples[1] for kind in samples]  # NeuSight has no other convolutions
        ramps = [0] + [10 ** (6 + i / 8) for i in range(32)]
        best = min(ramps, key=lambda ramp: sum(fit(kind, peak, achieved, ramp)[1]
                                               for kind in samples))
        fits = [fit(kind, peak, achieved, best) for kind in samples]
        shown = [f"{x:.2f}" if x else "-" for x in (elementwise, normalization, softmax)]
        print(f"{card:20} {fits[0][0]:7.2f} {fits[1][0]:9.2f} {fits[2][0]:6.2f} {best / 1e6:12.0f} "
              f"{fits[0][1]:15.2f} {fits[1][1]:4.2f} {fits[2][1]:5.2f} {shown[0]:>13} "
              f"{shown[1]:>14} {shown[2]:>8}")
    share, count = depthwise_share(data)
    print(f"depthwise convolution, V100: {share:.3f} of peak ({count} layers of NASNet-A)")
    for card, peak in (("V100", 125e12), ("T4", 65e12)):
        print(f"fp16 matrix products on tensor cores, {card}: "
              f"{tensor_core_share(data, card, peak):.2f} of peak")
    print("large convolutions, A100: {:.0f} TFLOP/s, ninth decile {:.0f}".format(
        *large_convolutions(data, "A100")))
    print("P4 (GDDR5): elementwise {:.2f}, normalization {:.2f}, softmax {:.2f}".format(
        bandwidth_share(data, "P4", ("add", "mul", "div"), 3),
        bandwidth_share(data, "P4", ("ln",), 3), bandwidth_share(data, "P4", ("softmax",), 2)))


if __name__ == "__main__":
    main()
