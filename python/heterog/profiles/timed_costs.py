"""Costs and links by what steps of DistributedDataParallel took.

A pass of a rank shows one number, what all operators together took. So all operators of a type of device
cost what the cost model says, times one ratio. It is not shrunk towards what was believed, as that of a
class of operators is (src/cost/class_ratios.h): those are guesses about what was not measured, and here
all of a step was.
"""

import json
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from heterog.base.errors import InputError
from heterog.base.files import make_folder, replace_file
from heterog.base.own_files import shipped
from heterog.base.values import as_number, shown
from heterog.discover.bases import data_bases
from heterog.discover.cards import device_type
from heterog.profiles.believed import AllReduce, OpTimes, Problem, make_problem, op_times, step_seconds
from heterog.profiles.timed_links import Links, fit_links, links_text
from heterog.profiles.timings import Timings, read_timings
from heterog.uneven.step_times import BUCKET

_LITTLE = 1e-12  # seconds: a cost has to be above 0


@dataclass
class Pass:
    """Of one rank."""

    rank: int
    type: str  # of its device
    samples: int
    measured: float  # seconds
    believed: float


@dataclass
class TimedStep:
    samples: tuple[int, ...]  # of each rank
    measured: float  # seconds
    before: float  # predicted, by what was believed
    after: float  # by what was measured


@dataclass
class Imported:
    """What `import_timings` found and wrote."""

    batch: int  # of a step of the script, over all ranks
    passes: list[Pass]
    ratios: dict[str, dict[int, float]]  # measured over believed of each type, by samples
    links: Links | None  # of one device: None
    steps: list[TimedStep]
    update: bool  # passes and steps have the optimizer's in them
    files: list[Path]


def import_timings(source, graph, cluster, out) -> Imported:
    """Reads what was measured, and writes OUT/TYPE.profile.json for every type of device and, where the
    all-reduce says something of links, OUT/links.profile.json."""
    timings = read_timings(source)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        problem = make_problem(str(graph), str(cluster), sum(timings.samples), folder)
        _check_gradients(timings, problem)
        _check_devices(timings, problem)
        passes, times = _passes(timings, problem)
        ratios = _ratios(passes)
        texts = {kind: _profile(timings, problem, kind, ratio, times) for kind, ratio in ratios.items()}
        links = None
        if len(timings.ranks) > 1:
            reduce = AllReduce(problem.cluster, len(timings.ranks), timings.gradient_bytes, BUCKET, folder)
            links = fit_links(timings.all_reduce_seconds, reduce, folder)
            if links.bandwidth:
                texts["links"] = links_text(links, problem.plan["cluster"]["name"])
        files = [make_folder(out) / f"{name}.profile.json" for name in texts]
        for file, text in zip(files, texts.values(), strict=True):
            replace_file(file, text.encode())
        steps = []
        for step in timings.steps:
            shares = dict(zip(problem.devices, step.samples, strict=True))
            before, after = step_seconds(problem, shares), step_seconds(problem, shares, files)
            steps.append(TimedStep(step.samples, step.seconds, before, after))
    return Imported(sum(timings.samples), passes, ratios, links, steps, timings.update, files)


def _check_gradients(timings: Timings, problem: Problem) -> None:
    nbytes = 0
    for tensor in problem.contents["tensors"]:
        if tensor["role"] == "parameter":
            nbytes += math.prod(tensor["shape"]) * getattr(torch, tensor["dtype"]).itemsize
    if nbytes != timings.gradient_bytes:
        raise InputError(
            f"{timings.source}: gradient_bytes: {timings.gradient_bytes}, but the parameters of {problem.graph} have "
            f"{nbytes}: give the graph of the model that was measured"
        )


def _check_devices(timings: Timings, problem: Problem) -> None:
    """Ranks are the devices of the cluster, in their order."""
    devices, cluster = problem.devices, problem.plan["cluster"]["name"]
    if len(timings.ranks) != len(devices):
        raise InputError(
            f"{timings.source}: ranks: {len(timings.ranks)}, but cluster {shown(cluster)} has {len(devices)} devices: "
            "describe those that ran, in the order of the ranks"
        )
    known = data_bases(None).devices
    for rank, (one, (name, kind)) in enumerate(zip(timings.ranks, devices.items(), strict=True)):
        card, own = device_type(one.device), kind.partition(":")[0]
        # What the data base does not know is a processor, or a type of the user's own.
        if one.device == kind or own in (card, one.device) or own not in known:
            continue
        if card in known or not own.startswith("CPU"):
            raise InputError(
                f"{timings.source}: ranks[{rank}].device: {shown(one.device)}, but device {rank} of cluster "
                f"{shown(cluster)}, {name}, is of type {kind}: ranks are its devices, in their order"
            )


def _passes(timings: Timings, problem: Problem) -> tuple[list[Pass], dict[tuple[str, int], OpTimes]]:
    """Every pass, and what is believed of a type's operators at each size that one of its ranks timed."""
    times: dict[tuple[str, int], OpTimes] = {}
    passes = []
    for rank, (one, (device, kind)) in enumerate(zip(timings.ranks, problem.devices.items(), strict=True)):
        for samples, seconds in one.seconds.items():
            if (kind, samples) not in times:
                times[kind, samples] = op_times(problem, device, samples)
            believed = times[kind, samples]
            total = sum(believed.of_op.values()) + (believed.update if timings.update else 0.0)
            passes.append(Pass(rank, kind, samples, seconds, total))
    return passes, times


def _ratios(passes: list[Pass]) -> dict[str, dict[int, float]]:
    """Of each type at every size that one of its ranks timed: the geometric mean over its ranks."""
    of_rank: dict[str, dict[int, dict[int, float]]] = {}
    for one in passes:
        of_type = of_rank.setdefault(one.type, {})
        of_type.setdefault(one.rank, {})[one.samples] = one.measured / one.believed
    found = {}
    for kind, ranks in of_rank.items():
        sizes = sorted({samples for ratios in ranks.values() for samples in ratios})
        found[kind] = {
            samples: math.exp(sum(math.log(_between(ratios, samples)) for ratios in ranks.values()) / len(ranks))
            for samples in sizes
        }
    return found


def _between(points: dict[int, float], at: int) -> float:
    """Linear between the points, beyond them as the nearest: as planning takes a profile."""
    below = max((x for x in points if x <= at), default=min(points))
    above = min((x for x in points if x >= at), default=max(points))
    if below >= above:
        return points[above if at <= above else below]
    return points[below] + (points[above] - points[below]) * (at - below) / (above - below)


def _profile(timings: Timings, problem: Problem, kind: str, ratios: dict[int, float], times) -> str:
    """docs/formats.md: `heterog-profile`."""
    seconds: dict[str, dict[int, float]] = {}
    launch = _launch_seconds(problem.cluster, kind)
    for samples, ratio in ratios.items():
        for op, one in _all_ops(problem.contents, times[kind, samples], ratio, launch).items():
            seconds.setdefault(op, {})[samples] = one
    operators = []
    for op, sizes in seconds.items():
        measured = [{"samples": samples, "seconds": one, "spread_seconds": 0.0, "residual_seconds": 0.0}
                    for samples, one in sizes.items()]  # fmt: skip
        largest = max(sizes)
        line = {"fixed_seconds": 0.0, "seconds_per_sample": sizes[largest] / largest, "r2": 1.0}
        operators.append({"form": op, **line, "measured": measured, "ops": [op]})
    head = {"format": "heterog-profile", "version": 1, "graph": problem.plan["graph"], "device": kind,
            "machine": f"imported from {Path(timings.source).name}", "torch": "", "threads": 1, "repeat": 1,
            "slices": list(ratios), "finished": True, "between": "model", "links": []}  # fmt: skip
    lines = ",\n ".join(json.dumps(one, separators=(",", ":")) for one in operators)
    return f'{json.dumps(head)[:-1]},\n"operators": [\n {lines}\n]}}\n'


def _all_ops(graph: dict, believed: OpTimes, ratio: float, launch: float) -> dict[str, float]:
    """Seconds of every operator, `ratio` times what was believed. Of updates their sum is known: they share
    it by the size of what they make. Where a call updates many parameters, planning counts one launch for
    it (src/compiler/emit/updates.cc)."""
    found = {op: ratio * seconds for op, seconds in believed.of_op.items()}
    updates = [op for op in graph["ops"] if op["phase"] == "update" and op["name"] not in found]
    made = [[graph["tensors"][output]["shape"] for output in op["outputs"] if output is not None] for op in updates]
    sizes = [1 + sum(math.prod(one for one in shape if isinstance(one, int)) for shape in shapes) for shapes in made]
    by_lists = any("._fused_" in op["op"] for op in updates)
    launch = launch if by_lists else 0.0
    rest = max(0.0, ratio * believed.update - launch * believed.calls)
    for op, size in zip(updates, sizes, strict=True):
        found[op["name"]] = max(launch + rest * size / sum(sizes), _LITTLE)
    return found


def _launch_seconds(cluster: str, kind: str) -> float:
    entry = data_bases(shipped(Path(cluster))).devices.get(kind.partition(":")[0], {})
    return as_number(entry.get("launch_seconds", 0), f"{kind}: launch_seconds", 0.0)
