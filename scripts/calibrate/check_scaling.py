#!/usr/bin/env python3
"""Prints steps on several GPUs, predicted beside measured (docs/clusters.md explains the rows).

usage: .venv/bin/python scripts/calibrate/check_scaling.py [--program build/dev/bin/heterog] [--only WORD]
       .venv/bin/python scripts/calibrate/check_scaling.py --only horovod --bucket 64
       .venv/bin/python scripts/calibrate/check_scaling.py --fit

Every case is public: what one GPU does and what several do. The device is scaled until the step of
one GPU is as measured, so that what is off lies in links, collectives and what overlaps, not in the
costs of operators. An efficiency is n GPUs' speed over n times one GPU's.

--fit prints what is fitted. First the deviation of steps (step_deviation of configs/devices.json) that eight GPUs of one
machine come to in each of seven frameworks, where NVLink hides what gradients take. These seven
cases are in no other table. Then the bandwidth of a network that nobody stated.

Graphs that models/ lacks (VGG-16, ResNet-101) are exported to out/graphs first. A cluster and a
device data base are written to a temporary folder for each case.
"""

import argparse
import json
import math
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field, replace

ROOT = pathlib.Path(__file__).resolve().parents[2]
GRAPHS = ROOT / "out/graphs"
DDP = "horovod:bucket_bytes=26214400"  # PyTorch's default bucket, 25 MiB


@dataclass(frozen=True)
class Setup:
    """A cluster of machines that are alike, and what synchronises gradients on it."""

    name: str
    device: str
    gpus: int  # of a machine; a case of fewer runs in one
    fabric: str
    nic: str | dict = ""  # a kind of link, or what a cluster file says of a card
    planner: str = "horovod"
    network: dict = field(default_factory=lambda: {"latency_seconds": 3e-6})
    machine: dict = field(default_factory=dict)  # what else a machine says


@dataclass(frozen=True)
class Case:
    setup: Setup
    model: str
    batch: int  # of a GPU
    gpus: int
    alone: float  # samples a second of one GPU
    together: float  # of all

    @property
    def measured(self):
        return self.together / (self.gpus * self.alone)


# Horovod's own benchmarks, 2017: four machines of four Pascal GPUs, 25 GbE, batch 64, efficiencies
# in percent. What one GPU does they leave out. TensorFlow's own benchmarks of 2017 say it of the
# P100 of a DGX-1 (142 images/s of Inception-v3, 154 of VGG-16; ResNet-101's between those of 50 and
# 152 by work); a PCIe card has 9.3 of its 10.6 TFLOP/s.
HOROVOD = {nic: Setup(f"Horovod, {nic}", "P100-PCIE-16GB", 4, "pcie3", nic)
           for nic in ("25gbe-rdma", "25gbe-tcp")}  # fmt: skip
HOROVOD_ALONE = {"inception_v3": 125, "resnet101": 113, "vgg16": 135}
HOROVOD_EFFICIENCY = {
    "25gbe-rdma": {"inception_v3": 94.1, "resnet101": 91.4, "vgg16": 85.3},
    "25gbe-tcp": {"inception_v3": 92.6, "resnet101": 88.2, "vgg16": 62.5},
}

# TensorFlow's benchmarks of May 2017 on synthetic data (tensorflow/docs, Apache-2.0): batch, then
# images/s of 1, 2, 4, 8 GPUs. What it calls "replicated (with NCCL)" alone: its other runs keep
# parameters on the CPU. NCCL 1 on the NVLink of a DGX-1, here taken for that of a V100.
DGX = Setup("TensorFlow, DGX-1 (P100)", "P100-PCIE-16GB", 8, "nvlink2-x2", planner="ev-ar")
DGX_IMAGES = [("vgg16", 64, 154, 295, 584, 1081), ("vgg16", 32, 144, 281, 549, 820),
              ("alexnet", 512, 2987, 5658, 10509, 17822)]  # fmt: skip

# The same, parameters replicated and gradients pushed over gRPC to servers on the hosts: boxes of 8
# K80 behind 10 GbE; batch, then images/s of 1, 8, 16, 32, 64 GPUs. The K80 is scaled from the M60.
GRPC = Setup("TensorFlow, EC2 K80, gRPC", "M60", 8, "pcie3-sockets", "10gbe-tcp", "ev-ps",
             {"latency_seconds": 10e-6, "parameter_servers": {"link": "grpc-2017"}},
             {"memory_bytes": 12 * 2**30, "host_model": "CPU-E5-2686-v4",
              "host_memory_bytes": 488 * 2**30, "serves_parameters": True})  # fmt: skip
GRPC_IMAGES = [("inception_v3", 64, 29.7, 229, 459, 902, 1783),
               ("resnet50", 64, 52.4, 378, 751, 1388, 2744),
               ("resnet152", 32, 19.4, 146, 291, 565, 981)]  # fmt: skip

# Gavel (MIT), PyTorch, a GPU a machine ("unconsolidated"): iterations/s of 1, 2, 4, 8 GPUs, summed
# over them. The network is not stated; Amazon gives one flow 5 Gb/s (p3.2xlarge). Google's is what
# the steps of batch 16 come to, which wait for it most (--fit); they count in no error.
AMAZON = Setup("Gavel, V100 on Amazon", "V100-SXM2-16GB", 1, "", "10gbe-tcp", DDP,
               {"latency_seconds": 10e-6, "flow_cap_bytes_per_second": 0.6e9})  # fmt: skip
GOOGLE_NIC = {"link": "10gbe-tcp", "bandwidth_bytes_per_second": 0.83e9}
GOOGLE = Setup("Gavel, P100 on Google", "P100-PCIE-16GB", 1, "", GOOGLE_NIC, DDP,
               {"latency_seconds": 10e-6})  # fmt: skip
GOOGLE_FITTED = 16  # the batch whose steps say what the network does
GAVEL = [(AMAZON, 16, 11.40, 10.04, 14.90, 25.17), (AMAZON, 32, 7.79, 8.97, 12.85, 22.83),
         (AMAZON, 64, 4.39, 6.87, 11.14, 19.76), (AMAZON, 128, 2.50, 4.33, 7.51, 13.94),
         (GOOGLE, 16, 9.05, 12.18, 18.06, 30.62), (GOOGLE, 32, 4.89, 9.43, 14.84, 26.34),
         (GOOGLE, 64, 2.62, 5.61, 10.56, 18.90), (GOOGLE, 128, 1.58, 2.90, 5.58, 10.73)]  # fmt: skip

# DLPerf (Oneflow-Inc/DLPerf, reports of 2020): ResNet-50 in fp32 on 8 V100 of one machine, images/s
# of 1 and of 8 GPUs; batch 128, MXNet's 96.
DLPERF = Setup("DLPerf, 8 V100, NVLink", "V100-SXM2-16GB", 8, "nvlink2-x2", planner=DDP)
DLPERF_IMAGES = [("OneFlow 0.1.9", 128, 384.85, 2969.45), ("TensorFlow 1.15", 128, 362.44, 2721.98),
                 ("MXNet 1.6", 96, 389.71, 2947.72), ("PyTorch 1.6", 128, 354.40, 2719.07),
                 ("PaddlePaddle 1.8", 128, 352.72, 2625.38), ("TensorFlow 2.3", 128, 321.80, 2458.74),
                 ("PyTorch 1.5, NVIDIA", 128, 367.29, 2887.65)]  # fmt: skip
# lambdal/deeplearning-benchmark (commit aa5addb6): ResNet-50 in mixed precision under NVIDIA's scripts,
# images/s of 1 and of 8 GPUs of one box, after the batch of a GPU.
LAMBDA_IMAGES = [("V100 16GB", "V100-SXM2-16GB", "nvlink2-x2", 256, 833, 6174),
                 ("A100 80GB SXM4", "A100-SXM4-80GB", "nvlink3", 1280, 1582, 11439),
                 ("RTX 6000 Ada", "RTX-6000-Ada-Generation", "pcie4-sockets", 928, 1146, 9211),
                 ("H100 80GB PCIe", "H100-PCIe", "pcie5", 1280, 1866, 14713),
                 ("H100 80GB SXM5", "H100-SXM5-80GB", "nvlink4", 1280, 2616, 20728),
                 ("H100 80GB SXM5, Dell", "H100-SXM5-80GB", "nvlink4", 1280, 2776, 22048),
                 ("H100 80GB SXM5, 1CC", "H100-SXM5-80GB", "nvlink4", 1280, 2791, 22088),
                 ("H200 141GB SXM", "H200-SXM5-141GB", "nvlink4", 1280, 3079, 24479)]  # fmt: skip
LARGEST_OF_8 = 1.4236  # the mean of the largest of eight normal draws (compiler/slowest.h)


def fit(predictor):
    """The deviation in each framework, then in boxes of newer cards: what the step of eight grew by,
    beyond what is predicted."""
    frameworks = [(name, Case(DLPERF, "resnet50", batch, 8, alone, together))
                  for name, batch, alone, together in DLPERF_IMAGES]  # fmt: skip
    boxes = [(name, Case(Setup(name, device, 8, fabric, planner=DDP), "resnet50", batch, 8, alone, together))
             for name, device, fabric, batch, alone, together in LAMBDA_IMAGES]  # fmt: skip
    for kind, rows in (("framework", frameworks), ("box", boxes)):
        print(f"{kind:20} measured  without deviation  deviation")
        deviations = []
        for name, case in rows:
            predicted = predictor.predicted(case)
            deviations.append((predicted / case.measured - 1) / LARGEST_OF_8)
            print(f"{name:20} {100 * case.measured:6.1f} %  {100 * predicted:15.1f} %  "
                  f"{deviations[-1]:9.4f}", flush=True)  # fmt: skip
        print(f"median {statistics.median(deviations):.4f}\n")


def fit_network(program, folder):
    """The bandwidth at which the steps that fix Google's network are right on average."""
    fitted = [case for case in cases() if is_fitted(case)]

    def bias(rate):
        nic = {**GOOGLE_NIC, "bandwidth_bytes_per_second": rate}
        predictor = Predictor(program, folder)
        return statistics.mean(
            math.log(case.measured / predictor.predicted(replace(case, setup=replace(GOOGLE, nic=nic))))
            for case in fitted)  # fmt: skip

    low, high = 0.5e9, 1.2e9
    for _ in range(6):  # the faster the network, the less is measured of what is predicted
        middle = (low + high) / 2
        low, high = (middle, high) if bias(middle) > 0 else (low, middle)
    print(f"Google's network, by {len(fitted)} steps: {(low + high) / 2e9:.2f} GB/s")


def is_fitted(case):
    return case.setup is GOOGLE and case.batch == GOOGLE_FITTED


def cases():
    for nic, models in HOROVOD_EFFICIENCY.items():
        for model, percent in models.items():
            alone = HOROVOD_ALONE[model]
            yield Case(HOROVOD[nic], model, 64, 16, alone, 16 * alone * percent / 100)
    for setup, rows, counts in ((DGX, DGX_IMAGES, (2, 4, 8)),
                                (GRPC, GRPC_IMAGES, (8, 16, 32, 64))):  # fmt: skip
        for model, batch, alone, *together in rows:
            for gpus, rate in zip(counts, together):
                yield Case(setup, model, batch, gpus, alone, rate)
    for setup, batch, alone, *together in GAVEL:
        for gpus, rate in zip((2, 4, 8), together):
            yield Case(setup, "resnet50", batch, gpus, alone * batch, rate * batch)


def without_comments(path):
    return json.loads(re.sub(r"^\s*//.*$", "", path.read_text(), flags=re.MULTILINE))


def export(name):
    """The graph of a model; exported now if models/ lacks it."""
    for folder in (ROOT / "models", GRAPHS):
        if (folder / f"{name}.json.gz").exists():
            return folder / f"{name}.json.gz"
    sys.path.insert(0, str(ROOT / "python"))
    import torchvision

    import heterog
    from heterog.zoo import spec, vision

    factories = {
        "vgg16": lambda: vision.Vgg(torchvision.models.vgg.cfgs["D"], 4096, vision.CLASSES),
        "resnet101": lambda: vision.resnet((3, 4, 23, 3)),
    }
    GRAPHS.mkdir(parents=True, exist_ok=True)
    path = GRAPHS / f"{name}.json.gz"
    print(f"exporting {name} to {path}", file=sys.stderr)
    heterog.export_training_step(factories[name], spec.images(vision.IMAGE, vision.CLASSES),
                                 spec.classification_loss, spec.sgd(0.01), name).save(path)  # fmt: skip
    return path


class Predictor:
    def __init__(self, program, folder, without_deviation=False):
        self.program, self.folder = program, pathlib.Path(folder)
        self.devices = without_comments(ROOT / "configs/devices.json")
        if without_deviation:
            for device in self.devices["devices"]:
                device["step_deviation"] = 0
        self.speeds = {}
        (self.folder / "links.json").write_bytes((ROOT / "configs/links.json").read_bytes())

    def step(self, case, gpus, speed, planner):
        """Seconds on so many GPUs, each `speed` times as fast as its data sheet says."""
        setup = case.setup
        devices = json.loads(json.dumps(self.devices))
        for device in devices["devices"]:
            if device["name"] == setup.device:
                for key in device:
                    if key.endswith("_per_second"):
                        device[key] *= speed
        inside = min(gpus, setup.gpus)
        own = dict(setup.machine)
        group = {"model": setup.device, "count": inside}
        if "memory_bytes" in own:
            group["memory_bytes"] = own.pop("memory_bytes")
        machine = {"name": "m", "count": gpus // inside, "devices": [group], **own}
        if inside > 1 or "serves_parameters" in own:
            machine["fabric"] = {"kind": "switch", "link": setup.fabric}
        if setup.nic:
            machine["nic"] = setup.nic if isinstance(setup.nic, dict) else {"link": setup.nic}
        cluster = {"format": "heterog-cluster", "version": 1, "name": "case",
                   "machines": [machine], "network": setup.network}  # fmt: skip
        (self.folder / "devices.json").write_text(json.dumps(devices))
        (self.folder / "cluster.json").write_text(json.dumps(cluster))
        command = [self.program, "plan", "--graph", export(case.model), "--cluster",
                   self.folder / "cluster.json", "--batch", case.batch * gpus, "--planner", planner,
                   "--out", self.folder / "plan.json", "--json"]  # fmt: skip
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if done.returncode not in (0, 3):
            sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
        return json.loads(done.stdout)["step_seconds"]

    def speed(self, case):
        """How fast the device has to be for one GPU to do what was measured."""
        key = (case.setup.device, case.model, case.batch, case.alone)
        if key not in self.speeds:
            speed = 1.0
            for _ in range(4):  # what does not scale, a launch, is little
                speed *= self.step(case, 1, speed, "single") * case.alone / case.batch
            self.speeds[key] = speed
        return self.speeds[key]

    def predicted(self, case):
        speed = self.speed(case)
        alone = self.step(case, 1, speed, "single")
        return alone / self.step(case, case.gpus, speed, case.setup.planner)


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--program", default=str(ROOT / "build/dev/bin/heterog"))
    parser.add_argument("--only", default="", help="cases whose setup has this word")
    parser.add_argument("--bucket", type=int, help="MiB of Horovod's buckets, if not the baseline's")
    parser.add_argument("--fit", action="store_true", help="prints the deviation of steps instead")
    options = parser.parse_args()
    if options.fit:
        with tempfile.TemporaryDirectory() as folder:
            fit(Predictor(options.program, folder, without_deviation=True))
            fit_network(options.program, folder)
        return
    errors = {}
    print(f"{'setup':28} {'model':13} {'batch':>5} {'GPUs':>4}  measured predicted  error of the step")
    with tempfile.TemporaryDirectory() as folder:
        predictor = Predictor(options.program, folder)
        for case in cases():
            if options.only.lower() not in case.setup.name.lower():
                continue
            if options.bucket and case.setup.planner == "horovod":
                planner = f"horovod:bucket_bytes={options.bucket << 20}"
                case = replace(case, setup=replace(case.setup, planner=planner))
            predicted = predictor.predicted(case)
            error = 100 * (case.measured / predicted - 1)
            if not is_fitted(case):
                errors.setdefault(case.setup.name, []).append(abs(error))
            print(f"{case.setup.name:28} {case.model:13} {case.batch:5} {case.gpus:4}  "
                  f"{100 * case.measured:6.1f} % {100 * predicted:6.1f} %  {error:+9.1f} %"
                  f"{'  fixes the network' if is_fitted(case) else ''}", flush=True)  # fmt: skip
    print(f"\n{'setup':28} cases  median error  9 of 10 below   most")
    everything = [error for some in errors.values() for error in some]
    for name, some in [*errors.items(), ("all", everything)]:
        print(f"{name:28} {len(some):5}  {statistics.median(some):10.1f} %"
              f"  {percentile(some, 0.9):11.1f} %  {max(some):5.1f}")  # fmt: skip


if __name__ == "__main__":
    main()
