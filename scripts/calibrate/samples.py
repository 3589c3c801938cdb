#!/usr/bin/env python3
"""Reduces public measurements to the samples in configs/calibration.

usage: scripts/calibrate/samples.py DATA

DATA holds deepbench/{gemm,conv}.csv (Baidu DeepBench, Apache-2.0), neusight/*.csv.gz and
neusight_test/*.csv.gz (NeuSight, MIT), vidur/*.csv.gz (Vidur, MIT), pipedream/*.graph.txt (PipeDream,
MIT), cdecatapult/conv_*.csv.gz (cdecatapult, Apache-2.0), model_steps.csv and model_steps_2.csv. Standard
library only. configs/calibration/README.md says what the columns mean and which rows were left out.
"""

import csv
import functools
import glob
import gzip
import math
import pathlib
import re
import shutil
import statistics
import sys

OUT = pathlib.Path(__file__).resolve().parents[2] / "configs/calibration"

# Names of the cards in the sources, and in configs/devices.json.
# The sheets of the TITAN X cards are of libraries older than the others' and are left out.
DEEPBENCH = {"V100": "V100-SXM2-16GB", "P100": "P100-PCIE-16GB", "1080Ti": "GTX-1080-Ti", "T4": "T4"}
NEUSIGHT = {"V100": "V100-PCIE-32GB", "P100": "P100-PCIE-16GB", "T4": "T4", "P4": "P4",
            "A100": "A100-SXM4-40GB"}  # the PCIe card of 40 GB has the same peaks
# Cards of NeuSight's test set. The A100 of 80 GB is the PCIe card; H100's rows are products alone.
NEUSIGHT_TEST = {"NVIDIA H100 80GB HBM3": "H100-SXM5-80GB", "NVIDIA L4": "L4",
                 "NVIDIA A100 80GB PCIe": "A100-SXM4-80GB", "NVIDIA A100-PCIE-40GB": "A100-SXM4-40GB",
                 "Tesla V100-PCIE-32GB": "V100-PCIE-32GB", "Tesla T4": "T4",
                 "Tesla P100-PCIE-16GB": "P100-PCIE-16GB", "Tesla P4": "P4"}
NEUSIGHT_TEST_TRAFFIC = ("A100-SXM4-80GB", "L4")  # the others have such rows in the training set
# On Pascal's cards layers with results wider than this reach a third of what others do.
PASCAL, PASCAL_WIDTH = ("P100-PCIE-16GB", "P4"), 8192
NEUSIGHT_TEST_SECONDS = 1.5e-4  # rows under it are left out: the host shows
VIDUR = {"a100": "A100-SXM4-80GB", "h100": "H100-SXM5-80GB"}
# Rows of one sheet and one shape are layouts of the same product. Libraries of 2017 lacked a kernel
# for some: what took longer than the fastest by this factor is left out.
LAYOUTS = 1.5
# fp16_in_fp32_math is the P100's storage in half precision, a rate of its own that PyTorch lacks.
PRECISIONS = {"fp32": "fp32", "fp16_tensorcore": "fp16"}
OPERATORS = {"add": "add", "mul": "mul", "div": "div", "pow": "pow", "addu": "add_scalar",
             "mulu": "mul_scalar", "divu": "div_scalar", "powu": "pow_scalar", "relu": "relu",
             "gelu": "gelu", "tanh": "tanh", "softmax": "softmax", "ln": "layer_norm"}
# Of PyTorch's eager mode: the host needs this long for one operator, so shorter kernels are hidden.
# A row counts where it took this many times the floor of its file.
ABOVE_FLOOR = 1.5
LAUNCH = 5e-6  # seconds of a kernel's own start, which stay in the samples
PIPEDREAM_ELEMENTS = 4e6  # of an activation, for a row to count
PIPEDREAM_HOST = 0.28e-3  # seconds that its profiler adds to a forward pass: what the shortest take


def rows(path):
    opener = gzip.open if str(path).endswith(".gz") else open
    with opener(path, "rt") as file:
        yield from csv.DictReader(file)


def neusight(data, kind, card):
    """Rows of one file, without those that the host's floor hides, and without overhead()."""
    for path in sorted(glob.glob(f"{data}/neusight/{kind}_*{card}*.csv.gz")):
        table = [dict(row, seconds=float(row["Latency"]) * 1e-3) for row in rows(path)]
        floor = statistics.quantiles([row["seconds"] for row in table], n=20)[0]
        for row in table:
            if row["seconds"] > ABOVE_FLOOR * floor:
                yield dict(row, seconds=row["seconds"] - overhead(data, card))


@functools.cache
def overhead(data, card):
    """Seconds that timing one operator between two events adds on this card: what a line through
    the element-wise operators leaves at zero bytes, but for a launch."""
    points = []
    for kind in ("add", "mul", "tanh", "relu"):
        (path,) = glob.glob(f"{data}/neusight/{kind}_*{card}*.csv.gz")
        table = [(int(row["B"]) * int(row["H"]) * 4 * (3 if kind in ("add", "mul") else 2),
                  float(row["Latency"]) * 1e-3) for row in rows(path)]
        floor = statistics.quantiles([seconds for _, seconds in table], n=20)[0]
        points += [point for point in table if ABOVE_FLOOR * floor < point[1] < 6 * floor]
    line = statistics.linear_regression(*zip(*points))
    return max(0, line.intercept - LAUNCH)


def thin(table, count):
    """About `count` rows, evenly spread over the order of the file."""
    table = list(table)
    return table[::max(1, len(table) // count)]


def seconds(text, unit=1e-3):
    try:
        value = float(text) * unit
    except ValueError:
        return None  # "N/A*"
    return value if value > 0 and math.isfinite(value) else None


def deepbench_products(data):
    fastest, found = {}, []
    for row in rows(f"{data}/deepbench/gemm.csv"):
        if row["gpu"] in DEEPBENCH and row["precision"] in PRECISIONS and seconds(row["ms"]):
            found.append(["deepbench", DEEPBENCH[row["gpu"]], PRECISIONS[row["precision"]], 1,
                          row["M"], row["N"], row["K"], seconds(row["ms"])])
            key = tuple(found[-1][:-1])
            fastest[key] = min(fastest.get(key, math.inf), found[-1][-1])
    return [row for row in found if row[-1] <= LAYOUTS * fastest[tuple(row[:-1])]]


def neusight_test(data, kind, count):
    """(device, row) of one kind of operator, about `count` a card."""
    cards = {}
    for row in rows(f"{data}/neusight_test/{kind}.csv.gz"):
        row["seconds"] = float(row["latency_ms"]) * 1e-3
        wide = NEUSIGHT_TEST[row["device"]] in PASCAL and int(row.get("N", 0)) > PASCAL_WIDTH
        if row["seconds"] > NEUSIGHT_TEST_SECONDS and not wide:
            cards.setdefault(row["device"], []).append(row)
    for card, table in cards.items():
        for row in thin(table, count):
            yield NEUSIGHT_TEST[card], row


def vidur_products(data):
    """Half-precision linear layers of Llama-2-7B by tokens and ranks of tensor parallelism."""
    for card, device in VIDUR.items():
        for row in thin(rows(f"{data}/vidur/llama2_7b_{card}.csv.gz"), 130):
            keys = ("num_tokens n_embd n_head n_kv_head n_expanded_embd "
                    "num_tensor_parallel_workers").split()
            tokens, width, heads, kv_heads, wide, ranks = (int(row[key]) for key in keys)
            head = width // heads
            sizes = {"attn_pre_proj": ((heads + 2 * kv_heads) * head // ranks, width),
                     "attn_post_proj": (width, width // ranks),
                     "mlp_up_proj": (2 * wide // ranks, width),
                     "mlp_down_proj": (width, wide // ranks)}
            for name, (n, k) in sizes.items():
                time = seconds(row[f"time_stats.{name}.median"])
                if tokens >= 16 and time:
                    yield ["vidur", device, "fp16", 1, tokens, n, k, time]


def products(data):
    yield from deepbench_products(data)
    yield from vidur_products(data)
    for kind in ("linear", "bmm"):
        for device, row in neusight_test(data, kind, 150):
            yield ["neusight", device, "fp32", row["B"], row["M"], row["N"], row["K"], row["seconds"]]
    for kind in ("linear", "bmm"):
        for card in ("T4", "A100"):
            for row in thin(neusight(data, kind, card), 300):
                batch, m, n, k = (int(row[key]) for key in "BMNK")
                if kind == "linear":
                    batch, m = 1, batch * m
                yield ["neusight", NEUSIGHT[card], "fp32", batch, m, n, k, row["seconds"]]


def convolutions(data):
    passes = {"fwd_ms": "forward", "bwd_input_ms": "input_gradient", "bwd_weight_ms": "weight_gradient"}
    known = set()
    table = list(rows(f"{data}/deepbench/conv.csv"))
    table.sort(key=lambda row: row["gpu"] not in ("V100", "T4"))  # the sheets that are right first
    for row in table:
        if row["gpu"] not in DEEPBENCH or row["precision"] not in PRECISIONS:
            continue
        keys = "N C H W Kout filt_h filt_w pad_h pad_w stride_h stride_w".split()
        shape = [int(float(row[key])) for key in keys]
        if row["gpu"] in ("V100", "T4"):
            known.add(tuple(shape))
        elif tuple(shape) not in known:
            # The other sheets have the sides of asymmetric filters the wrong way round.
            for i in (5, 7, 9):
                shape[i], shape[i + 1] = shape[i + 1], shape[i]
            if tuple(shape) not in known:
                # Strides of those sheets are right as they stand.
                shape[9], shape[10] = shape[10], shape[9]
            assert tuple(shape) in known, (row["gpu"], shape)
        # Libraries of then ran half precision on tensor cores for multiples of eight channels alone.
        # Of the rest, filters that are not square and padded ones of 1 × 1 are of no network that
        # trains in it, and took up to ten times as long as their neighbours.
        odd = shape[5] != shape[6] or shape[5] < 3 and shape[7]
        if PRECISIONS[row["precision"]] == "fp16" and (shape[1] % 8 or shape[4] % 8 or odd):
            continue
        for key, name in passes.items():
            # No network asks for the gradient of an image of one or three channels.
            if seconds(row[key]) and not (name == "input_gradient" and shape[1] <= 3):
                yield ["deepbench", DEEPBENCH[row["gpu"]], PRECISIONS[row["precision"]], name,
                       *shape, seconds(row[key])]
    for card in ("T4", "A100"):
        for row in thin(neusight(data, "conv", card), 250):
            keys = "B Input_Channel Output_Channel Kernel_Szie Input_Size Stride Padding".split()
            b, c, o, k, size, stride, padding = (int(row[key]) for key in keys)
            yield ["neusight", NEUSIGHT[card], "fp32", "forward", b, c, size, size, o, k, k, padding,
                   padding, stride, stride, row["seconds"]]


def pipedream_layers(path):
    """(layer, forward, backward, elements of the output, of the input) of every profiled layer."""
    nodes, sources, sums = {}, {}, set()
    for line in open(path):
        if line.startswith("\t"):
            source, target = line.split(" -- ")
            sources.setdefault(target.strip(), []).append(source.strip())
            continue
        match = re.match(r"(node\d+) -- (.*) -- forward_compute_time=([\d.]+), "
                         r"backward_compute_time=([\d.]+), activation_size=([\d.]+)", line)
        if match and match[2].startswith("Add"):
            sums.add(match[1])
        if match:
            nodes[match[1]] = (match[2], float(match[3]) * 1e-3 - PIPEDREAM_HOST,
                               float(match[4]) * 1e-3, int(float(match[5])) // 4)
    for name, (layer, forward, backward, size) in nodes.items():
        inputs = [nodes[source][3] for source in sources.get(name, []) if source in nodes]
        # A sum in place is timed with what follows it.
        if layer.startswith("ReLU") and sums.intersection(sources.get(name, [])):
            layer = "Add and " + layer
        if size and len(inputs) == 1 and inputs[0]:
            yield layer, forward, backward, size, inputs[0]


def traffic(data):
    for card in NEUSIGHT:
        for kind, name in OPERATORS.items():
            # The row-wise ones depend on two sizes, the others on their product.
            count = 150 if kind in ("softmax", "ln") else 40
            for row in thin(neusight(data, kind, card), count):
                yield ["neusight", NEUSIGHT[card], name, row["B"], row["H"], 0, row["seconds"]]
    for kind in ("elem", "softmax", "ln"):
        for device, row in neusight_test(data, kind, 200):
            if device in NEUSIGHT_TEST_TRAFFIC:
                yield ["neusight", device, OPERATORS[row["op"]], row["B"], row["H"], 0, row["seconds"]]
    for card, device in VIDUR.items():
        # Sums in half precision: half as many numbers of fp32 move as much.
        for row in thin(rows(f"{data}/vidur/llama2_7b_{card}.csv.gz"), 130):
            if int(row["num_tokens"]) >= 1024:
                yield ["vidur", device, "add", row["num_tokens"], int(row["n_embd"]) // 2, 0,
                       seconds(row["time_stats.add.median"])]
    for path in sorted(glob.glob(f"{data}/pipedream/*.graph.txt")):
        for layer, forward, backward, size, source in pipedream_layers(path):
            device = "V100-PCIE-16GB"
            if match := re.match(r"BatchNorm2d\((\d+)", layer):
                shape, name = [int(match[1]), size // int(match[1]), 0], "batch_norm"
            elif match := re.match(r"(Max|Avg)Pool2d\(kernel_size=(\d+),", layer):
                shape, name = [int(match[2]), source, size], {"Max": "max_pool", "Avg": "avg_pool"}[match[1]]
            elif match := re.match(r"Conv2d\((\d+), \d+, kernel_size=\((\d+), .*groups=\1[,)]", layer):
                shape, name = [int(match[2]), source, size], "depthwise"
            else:
                continue
            # Small ones are mostly what the profiler adds. Chosen by size, not by time: that would
            # keep the small ones that something else had delayed.
            if name == "depthwise":
                if forward > 0 and backward > 0 and size > PIPEDREAM_ELEMENTS / 4:
                    yield ["pipedream", device, name, *shape, forward + backward]
                continue
            # Batch norms of convolution networks are many and short: shorter ones count as well.
            least = PIPEDREAM_ELEMENTS
            if name == "batch_norm" and "nasnet" in path:
                continue
            if forward > 0 and source > (1 if name == "batch_norm" else 2) * least:
                yield ["pipedream", device, name, *shape, forward]
            if backward > 0 and source > least:
                yield ["pipedream", device, f"{name}_backward", *shape, backward]


CATAPULT = {"M60": "M60", "1080ti": "GTX-1080-Ti", "P100": "P100-PCIE-16GB", "V100": "V100-SXM2-16GB"}
CATAPULT_SECONDS = 2e-3  # of a session step: under it the host's 0.14 to 0.22 ms show


def catapult(data):
    """Forward passes of convolutions alone under TensorFlow 1: no bias, activation or update. 150 to 300
    a card, of those that pad both sides alike, as cuDNN does."""
    for card, device in CATAPULT.items():
        table = []
        for row in rows(f"{data}/cdecatapult/conv_{card}.csv.gz"):
            keys = "batch cin in_hw cout kernel stride same_pad bias".split()
            n, c, side, filters, kernel, stride, same, bias = (int(row[key]) for key in keys)
            out = -(-side // stride)
            padded = max(0, (out - 1) * stride + kernel - side) if same else 0
            alone = not bias and row["act"] == row["optimizer"] == "none"
            if alone and padded % 2 == 0 and kernel <= side and seconds(row["ms_median"]) > CATAPULT_SECONDS:
                table.append(["cdecatapult", device, "fp32", "forward", n, c, side, side, filters, kernel,
                              kernel, padded // 2, padded // 2, stride, stride, seconds(row["ms_median"])])
        yield from thin(table, 150)


# Networks whose layers are compared class by class, not fitted.
PIPEDREAM_CHECKED = ("densenet121", "inception_v3", "resnet101", "resnet50", "vgg16")


def layers(data):
    """Layers of those networks by their sizes, and how many there are: seconds of them all, the
    profiler's addition taken off."""
    found = {}
    for row in profiled_layers(data):
        counted = found.setdefault(tuple(row[:-1]), [0, 0])
        counted[0] += 1
        counted[1] += row[-1]
    for row, (count, time) in found.items():
        if time > 0:
            yield [*row, count, time]


def profiled_layers(data):
    for model in PIPEDREAM_CHECKED:
        path = f"{data}/pipedream/{model}.graph.txt"
        match = re.search(r"Linear\(in_features=\d+, out_features=1000.*activation_size=([\d.]+)",
                          pathlib.Path(path).read_text())
        batch = int(float(match[1])) // 4000
        for layer, forward, backward, size, source in pipedream_layers(path):
            number = r"\((\d+), (\d+)\)"
            if match := re.match(r"BatchNorm2d\((\d+)", layer):
                kind, sizes = "batch_norm", [int(match[1]), 0, 0, 0, 0, 0, 0]
            elif layer.startswith(("ReLU", "Add and ReLU")):
                kind, sizes = "relu" if layer[0] == "R" else "add_relu", [1, 0, 0, 0, 0, 0, 0]
            elif match := re.match(r"(Max|Avg)Pool2d\(kernel_size=(\d+), stride=(\d+), padding=(\d+)", layer):
                side, stride, pad = map(int, match.groups()[1:])
                kind = {"Max": "max_pool", "Avg": "avg_pool"}[match[1]]
                sizes = [1, 1, side, side, pad, pad, stride]
            elif match := re.match(r"Conv2d\((\d+), (\d+), kernel_size=" + number + ", stride=" + number
                                   + f"(?:, padding={number})?", layer):
                c, filters, kh, kw, stride, _, *pads = (int(x or 0) for x in match.groups())
                kind, sizes = "convolution", [c, filters, kh, kw, *pads, stride]
            else:
                continue
            image = source // batch // sizes[0]
            side = math.isqrt(image)
            if kind == "convolution" and side * side != image:
                continue
            for direction, time in (("forward", forward), ("backward", backward)):
                yield ["pipedream", "V100-PCIE-16GB", model, kind, direction, batch, *sizes, source,
                       size, time]


def write(name, columns, table):
    with open(OUT / name, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns.split())
        count = 0
        for row in table:
            writer.writerow(row[:-1] + [f"{row[-1]:.5g}"])
            count += 1
    print(f"{OUT / name}: {count} rows, {(OUT / name).stat().st_size / 1e3:.0f} kB")


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    data = sys.argv[1]
    write("matmul.csv", "source device dtype batch m n k seconds", products(data))
    write("convolution.csv", "source device dtype pass n c h w filters kernel_h kernel_w pad_h pad_w "
          "stride_h stride_w seconds", convolutions(data))
    write("traffic.csv", "source device operator a b c seconds", traffic(data))
    write("layers.csv", "source device model layer pass n c filters kernel_h kernel_w pad_h pad_w stride "
          "elements_in elements_out layers seconds", layers(data))
    write("convolution_tensorflow.csv", "source device dtype pass n c h w filters kernel_h kernel_w pad_h "
          "pad_w stride_h stride_w seconds", catapult(data))
    for name in ("model_steps.csv", "model_steps_2.csv"):
        shutil.copy(f"{data}/{name}", OUT / name)
    print("taken off NeuSight's rows, us: "
          + ", ".join(f"{card} {overhead(data, card) * 1e6:.1f}" for card in NEUSIGHT))


if __name__ == "__main__":
    main()
