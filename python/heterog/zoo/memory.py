"""Estimates the peak memory of exported graphs, to choose the sizes that papers leave open.

    python -m heterog.zoo.memory [--models DIR]

prints, for each case of HeteroG's Tables 1 and 4, which devices of plain data parallelism
overflow, and whether that is the paper's pattern. It knows no time: the simulator decides in the
end. The order of the operators is the graph's own, with gradients either all held until the
updates at the end (`held`) or updated and dropped as they come (`early`); the truth of a run lies
between the two.
"""

import argparse
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from heterog.export.graph.writer import read_graph

GIBIBYTE = 2**30
RESERVE_BYTES = 0.7e9  # context and libraries of a device
DTYPE_BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2,
               "int16": 2, "int8": 1, "uint8": 1, "bool": 1}  # fmt: skip


@dataclass(frozen=True)
class DeviceKind:
    name: str
    bytes: float
    count: int
    speed: int  # relative, rounded as HeteroG's proportional shares are


V100, GTX, P100 = (("V100", 16, 2), ("GTX1080Ti", 11, 1), ("P100", 12, 1))
EIGHT = tuple(DeviceKind(n, g * GIBIBYTE, c, s) for (n, g, s), c in ((V100, 2), (GTX, 4), (P100, 2)))
TWELVE = tuple(DeviceKind(n, g * GIBIBYTE, 4, s) for n, g, s in (V100, GTX, P100))

# Model: batches that every data-parallel baseline runs, batches that none does (8 GPUs; the
# 12 GPUs of Table 4 take half as much again).
CASES = {
    "vgg19": ((192,), ()),
    "resnet200": ((192,), (384,)),
    "inception_v3": ((192,), ()),
    "mobilenet_v2": ((192,), ()),
    "nasnet_a_large": ((192,), ()),
    "transformer6": ((720,), ()),
    "bert_large24": ((48,), (96,)),
    "xlnet_large24": ((48,), (96,)),
    "transformer24": ((), (120,)),
    "bert_large48": ((), (24,)),
    "xlnet_large48": ((), (24,)),
}


def affine(text, batch: int) -> int:
    """The value of `7`, `B`, `4B`, `4B+1` or `B-1`."""
    if not isinstance(text, str):
        return text
    factor, _, constant = text.partition("B")
    return int(factor or 1) * batch + int(constant or 0)


@cache
def is_alias(name: str) -> bool:
    """Whether an operator's results are views of its first argument, by its ATen schema."""
    namespace, packet, overload = name.split(".")
    schema = getattr(getattr(getattr(torch.ops, namespace), packet), overload)._schema
    return any(r.alias_info is not None for r in schema.returns)


def tensor_arguments(op: dict) -> list[int]:
    found = []

    def visit(argument):
        if isinstance(argument, list):
            for item in argument:
                visit(item)
        elif isinstance(argument, str) and argument.startswith("%"):
            found.append(int(argument[1:]))

    visit(op["args"])
    visit(list(op.get("kwargs", {}).values()))
    return found


class MemoryModel:
    """A graph prepared for questions of peak memory at many batch sizes."""

    def __init__(self, graph: dict):
        self.tensors = graph["tensors"]
        self.ops = graph["ops"]
        self.reads = [tensor_arguments(op) for op in self.ops]
        self.base = list(range(len(self.tensors)))  # the tensor whose memory each one shares
        for op, reads in zip(self.ops, self.reads):
            if is_alias(op["op"]):
                for output in op["outputs"]:
                    if output is not None:
                        self.base[output] = self.base[reads[0]]

    def bytes_of(self, tensor: int, batch: int) -> int:
        count = 1
        for dimension in self.tensors[tensor]["shape"]:
            count *= affine(dimension, batch)
        return count * DTYPE_BYTES[self.tensors[tensor]["dtype"]]

    def role_bytes(self, *roles: str, batch: int = 1) -> int:
        return sum(self.bytes_of(i, batch) for i, t in enumerate(self.tensors) if t["role"] in roles)

    def order(self, early_updates: bool) -> list[int]:
        """The graph's order, or that with each update as soon as its gradient is there."""
        everything = range(len(self.ops))
        if not early_updates:
            return list(everything)
        producer = {o: i for i, op in enumerate(self.ops) for o in op["outputs"] if o is not None}
        missing = [sum(t in producer for t in set(reads)) for reads in self.reads]
        readers: dict[int, list[int]] = {}
        for i, reads in enumerate(self.reads):
            for tensor in set(reads):
                readers.setdefault(tensor, []).append(i)
        result = []

        def emit(i):
            pending = [i]
            while pending:
                done = pending.pop(0)
                result.append(done)
                for output in self.ops[done]["outputs"]:
                    for reader in readers.get(output, ()):
                        missing[reader] -= 1
                        if missing[reader] == 0 and self.ops[reader]["phase"] == "update":
                            pending.append(reader)

        started = [missing[i] == 0 and self.ops[i]["phase"] == "update" for i in everything]
        for i in everything:
            if started[i] or self.ops[i]["phase"] != "update":
                emit(i)
        return result

    def peak(self, batch: int, order: list[int], state_share: float = 1.0) -> float:
        """Bytes at the worst moment on one device that trains `batch` samples.

        `state_share` is the part of the optimizer state that this device keeps. What replaces a
        parameter, a buffer or a state overwrites it and costs nothing.
        """
        live = self.role_bytes("parameter", "buffer", "input", batch=batch)
        live += state_share * self.role_bytes("optimizer_state")
        last = {}
        for i in order:
            for tensor in self.reads[i]:
                last[self.base[tensor]] = i
        dying: dict[int, list[int]] = {}
        for tensor, i in last.items():
            dying.setdefault(i, []).append(tensor)
        counted: dict[int, int] = {}
        worst = live
        for i in order:
            for output in self.ops[i]["outputs"]:
                if output is None or self.base[output] != output:
                    continue
                if "replaces" not in self.tensors[output]:
                    counted[output] = self.bytes_of(output, batch)
                    live += counted[output]
            worst = max(worst, live)
            for tensor in dying.get(i, ()):
                if self.tensors[tensor]["role"] != "output":
                    live -= counted.pop(tensor, 0)
            for output in self.ops[i]["outputs"]:  # results that nobody reads
                if output in counted and output not in last and self.tensors[output]["role"] != "output":
                    live -= counted.pop(output)
        return worst


def slices(batch: int, cluster, proportional: bool) -> dict[str, int]:
    """The largest slice on each kind of device, by largest remainder."""
    weights = [(k.name, k.speed if proportional else 1) for k in cluster for _ in range(k.count)]
    total = sum(w for _, w in weights)
    sizes = [batch * w // total for _, w in weights]
    by_remainder = sorted(range(len(weights)), key=lambda i: (-(batch * weights[i][1] % total), i))
    for i in by_remainder[: batch - sum(sizes)]:
        sizes[i] += 1
    return {k.name: max(s for (n, _), s in zip(weights, sizes) if n == k.name) for k in cluster}


BASELINES = [(share, sync) for share in ("EV", "CP") for sync in ("PS", "AR")]


def overflows(model: MemoryModel, orders: dict, batch: int, cluster, share: str, sync: str) -> dict:
    """For each order: the largest use of a device's memory, as a share of what it offers."""
    devices = sum(kind.count for kind in cluster)
    state_share = 1.0 / devices if sync == "PS" else 1.0
    sizes = slices(batch, cluster, share == "CP")
    return {
        name: max(
            model.peak(sizes[kind.name], order, state_share) / (kind.bytes - RESERVE_BYTES)
            for kind in cluster)
        for name, order in orders.items()
    }  # fmt: skip


def report(directory: Path, names) -> int:
    """Prints every case; returns the number of deviations from the paper."""
    deviations = 0
    print(f"{'model':16} {'GPUs':>4} {'batch':>5} {'paper':5} " + " ".join(
        f"{share}-{sync} early/held" for share, sync in BASELINES))  # fmt: skip
    for name in names:
        path = directory / f"{name}.json.gz"
        if not path.exists():
            print(f"{name:16} not exported")
            continue
        model = MemoryModel(read_graph(path))
        orders = {"early": model.order(True), "held": model.order(False)}
        for devices, cluster in ((8, EIGHT), (12, TWELVE)):
            for fits, batches in zip((True, False), CASES[name]):
                for batch in batches:
                    batch = batch * devices // 8
                    cells = []
                    for share, sync in BASELINES:
                        use = overflows(model, orders, batch, cluster, share, sync)
                        wrong = [order for order in use if (use[order] <= 1) != fits]
                        deviations += len(wrong) == len(use)
                        mark = "!!" if len(wrong) == len(use) else "? " if wrong else "  "
                        cells.append(f"{use['early']:8.2f}/{use['held']:5.2f}{mark}")
                    print(f"{name:16} {devices:4} {batch:5} {'fits' if fits else 'OOM':5} "
                          + " ".join(cells))  # fmt: skip
    print(f"{deviations} deviations (!!); ? depends on when gradients are dropped")
    return deviations


def main() -> None:
    parser = argparse.ArgumentParser(description="peak memory of HeteroG's cases")
    parser.add_argument("names", nargs="*", default=list(CASES))
    parser.add_argument("--models", type=Path, default=Path("models"))
    options = parser.parse_args()
    report(options.models, options.names or list(CASES))


if __name__ == "__main__":
    main()
