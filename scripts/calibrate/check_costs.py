#!/usr/bin/env python3
"""Prints step times of the cost model beside published ones (docs/costs.md has the table).

usage: scripts/calibrate/check_costs.py [--table] [--program build/dev/bin/print_costs] [--models models]

--table prints instead how far the cost table is from the formula half-way between its knots.

Builds the program with `cmake --build build/dev --target print_costs` if it is not there. Models
whose graph is missing are left out and named.
"""

import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# model, batch, device, published samples/s, factor, source. The factor is what a published sample
# is in samples of our graph, where the lengths of sequences differ. Gavel: iterations per second of
# one GPU, its `unconsolidated` figures; it does not say which V100. PipeDream: the sum of its
# profiled layers, forward and backward, less 0.28 ms that the profiler adds to each forward pass,
# and without reading the input; its machines of one V100 type had the PCIe card, its update is not
# among the layers, and its DenseNet was profiled at batch 64 (by the size of its activations).
# Gavel's ResNet-50 on a V100 is slower than others': MXNet reached 364 images a second.
GAVEL = {("V100-SXM2-16GB", 16): 11.40, ("V100-SXM2-16GB", 32): 7.79, ("V100-SXM2-16GB", 64): 4.39,
         ("V100-SXM2-16GB", 128): 2.50, ("P100-PCIE-16GB", 16): 9.05, ("P100-PCIE-16GB", 32): 4.89,
         ("P100-PCIE-16GB", 64): 2.62, ("P100-PCIE-16GB", 128): 1.58}
PIPEDREAM = "PipeDream: layers, no update"
SPEEDS = [
    *(("resnet50", batch, device, rate * batch, 1, f"Gavel: {rate} steps/s, with input pipeline")
      for (device, batch), rate in GAVEL.items()),
    ("resnet50", 128, "V100-PCIE-16GB", 320.7, 1, PIPEDREAM),
    ("inception_v3", 128, "V100-PCIE-16GB", 212.0, 1, PIPEDREAM),
    ("densenet121", 64, "V100-PCIE-16GB", 286.1, 1, PIPEDREAM),
    ("vgg19", 64, "V100-SXM2-16GB", 129.0, 1, "FastT table 1 (TensorFlow 1)"),
    ("inception_v3", 64, "V100-SXM2-16GB", 191.0, 1, "FastT table 1"),
    ("resnet200", 32, "V100-SXM2-16GB", 89.3, 1, "FastT table 1"),
    ("bert_large24", 16, "V100-SXM2-16GB", 84.2, 0.25, "FastT table 1: 64 tokens, ours 256"),
    ("lenet5", 256, "V100-SXM2-16GB", 8827.5, 1, "FastT table 1"),
    ("alexnet", 256, "V100-SXM2-16GB", 1630.5, 1, "FastT table 1"),
]

# model, batch, slow device, fast device, published ratio of times, source.
RATIOS = [
    ("resnet50", 64, "GTX-1080-Ti", "V100-SXM2-16GB", "1.9 - 2.1", "whole steps"),
    ("resnet50", 64, "P100-PCIE-16GB", "V100-SXM2-16GB", "1.6 - 1.7", "Gavel, batch 32 to 128"),
    ("transformer6", 64, "P100-PCIE-16GB", "V100-SXM2-16GB", "1.7 - 1.8", "Gavel, batch 64, 128"),
    ("vgg19", 64, "GTX-1080-Ti", "V100-PCIE-16GB", "about 2", "HeteroG section 2.3"),
    ("resnet200", 64, "GTX-1080-Ti", "V100-PCIE-16GB", "about 2", "HeteroG section 2.3"),
]

# Cases of HeteroG tables 1 and 4 whose proportional replicas are printed: the batch of table 1.
REPLICAS = [("vgg19", 192), ("resnet200", 192), ("inception_v3", 192), ("mobilenet_v2", 192),
            ("nasnet_a_large", 192), ("transformer6", 720), ("bert_large24", 48),
            ("xlnet_large24", 48)]


def run(program, graph, batch, *options):
    devices = str(ROOT / "configs/devices.json")
    out = subprocess.run([program, str(graph), devices, str(batch), *options], check=True,
                         capture_output=True, text=True).stdout
    return json.loads(out)["devices"]


def print_table(program):
    for model in ("resnet50", "bert_large24", "inception_v3"):
        found = run(program, ROOT / f"models/{model}.json.gz", 192, "--table")
        worst = max(found, key=lambda device: found[device]["table_off"])
        print(f"{model:16} at most {100 * found[worst]['table_off']:.1f} % of a step ({worst})")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build/dev/bin/print_costs"))
    parser.add_argument("--models", default=str(ROOT / "models"))
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    if not pathlib.Path(arguments.program).exists():
        subprocess.run(["cmake", "--build", str(ROOT / "build/dev"), "--target", "print_costs"],
                       check=True, stdout=sys.stderr)
    if arguments.table:
        print_table(arguments.program)
        return
    known, missing = {}, set()

    def costs(model, batch):
        path = pathlib.Path(arguments.models) / f"{model}.json.gz"
        if not path.exists():
            missing.add(model)
            return None
        if (model, batch) not in known:
            known[model, batch] = run(arguments.program, path, batch)
        return known[model, batch]

    print(f"{'model':16} {'batch':>5} {'device':16} {'published/s':>11} {'ours/s':>8} "
          f"{'error of time':>13}  source")
    for model, batch, device, published, factor, source in SPEEDS:
        if devices := costs(model, batch):
            seconds = devices[device]["seconds"]
            if source == PIPEDREAM:
                seconds -= devices[device]["optimizer"]
            ours = batch / seconds / factor
            print(f"{model:16} {batch:5} {device:16} {published:11.1f} {ours:8.1f} "
                  f"{100 * (published / ours - 1):+11.0f} %  {source}")
    print(f"\n{'model':16} {'batch':>5} {'ratio of step times':33} {'published':>10} {'ours':>5}  source")
    for model, batch, slow, fast, published, source in RATIOS:
        if devices := costs(model, batch):
            ours = devices[slow]["seconds"] / devices[fast]["seconds"]
            print(f"{model:16} {batch:5} {slow + ' / ' + fast:33} {published:>10} {ours:5.2f}  {source}")
    cards = ("V100-PCIE-16GB", "GTX-1080-Ti", "P100-PCIE-12GB")
    print(f"\n{'model':16} {'batch':>5}  speed over the P100's: V100, 1080 Ti   replicas (CP)")
    for model, batch in REPLICAS:
        if devices := costs(model, batch):
            seconds = [devices[card]["seconds"] for card in cards]
            ratios = [max(seconds) / value for value in seconds]
            # As proportional_replicas() rounds: halves away from zero.
            replicas = " : ".join(str(max(1, int(ratio + 0.5))) for ratio in ratios)
            print(f"{model:16} {batch:5}  {ratios[0]:30.2f} {ratios[1]:8.2f}   {replicas}")
    if missing:
        print("\nno graph, left out: " + ", ".join(sorted(missing)), file=sys.stderr)


if __name__ == "__main__":
    main()
