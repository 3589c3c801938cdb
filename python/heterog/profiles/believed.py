"""What planning believes before anything was measured: what the operators of a step take on a device, what
a step of DistributedDataParallel takes, and what an all-reduce takes. All is read off plans that the
program simulates."""

import json
from dataclasses import dataclass
from pathlib import Path

from heterog.base.own_files import shipped_graph
from heterog.base.reading import MOST_WRITTEN_BYTES, read_json
from heterog.base.run_verb import run_verb
from heterog.export.graph.writer import pack_graph, read_graph
from heterog.profiles.layer_graph import Layer
from heterog.profiles.layer_step import LayerStep

_LITTLE = 1e-12  # seconds: a cost has to be above 0


@dataclass
class Problem:
    """A training step on a cluster."""

    graph: str
    cluster: str
    contents: dict  # of the graph's file
    plan: dict  # a replica on every device
    folder: Path  # for files that nobody keeps

    @property
    def devices(self) -> dict[str, str]:
        """The type of each device by its name, in the order of the cluster."""
        types = {name: kind for kind, names in self.plan["cluster"]["types"].items() for name in names}
        return {device["name"]: types[device["name"]] for device in self.plan["predicted"]["devices"]}


@dataclass
class OpTimes:
    """Seconds of one device on so many samples."""

    of_op: dict[str, float]  # forward and backward
    update: float = 0.0  # of all parameters,
    calls: int = 0  # in so many calls


def make_problem(graph: str, cluster: str, batch: int, folder: Path) -> Problem:
    """Refuses what planning refuses. Raises NothingFits where the batch, shared out evenly, does not fit in
    the devices' memory."""
    out = folder / "even.json"
    run_verb(["plan", f"--graph={graph}", f"--cluster={cluster}", f"--batch={batch}", "--planner=ev-ar:order=fifo",
              f"--out={out}"])  # fmt: skip
    return Problem(graph, cluster, read_graph(shipped_graph(Path(graph))), read_json(out, MOST_WRITTEN_BYTES), folder)


def op_times(problem: Problem, device: str, samples: int) -> OpTimes:
    """Of a step on that device alone."""
    _, events = _simulated(problem, {device: samples})
    found = OpTimes({})
    for event in events:
        seconds = 1e-6 * event["dur"]
        if event["cat"] == "update":
            found.update += seconds
            found.calls += 1
        else:
            found.of_op[event["name"]] = max(seconds, _LITTLE)
    return found


def step_seconds(problem: Problem, shares: dict[str, int], profiles=()) -> float:
    """A step of DistributedDataParallel, of so many samples on each device: gradients in its buckets,
    operators in the order in which they become ready."""
    return _simulated(problem, shares, profiles, bucket_bytes=25 << 20)[0]["step_seconds"]


def _simulated(problem: Problem, shares: dict[str, int], profiles=(), bucket_bytes: int = 0) -> tuple[dict, list]:
    """What `simulate` says, and the slices of its trace. A plan that does not fit is simulated, too."""
    weights = [float(samples) for samples in shares.values()]
    decision = {"devices": list(shares), "weights": weights, "sync": "all-reduce"}
    plan = {key: value for key, value in problem.plan.items() if key != "grouping"}
    plan |= {"batch": sum(shares.values()), "bucket_bytes": bucket_bytes, "decisions": [decision],
             "units": [0], "unit_of_op": [[0, len(problem.contents["ops"])]]}  # fmt: skip
    file, trace = problem.folder / "plan.json", problem.folder / "trace.json"
    file.write_text(json.dumps(plan), encoding="utf-8")
    found = run_verb(["simulate", f"--graph={problem.graph}", f"--cluster={problem.cluster}", f"--plan={file}",
                      f"--trace={trace}", *(f"--profile={path}" for path in profiles)])  # fmt: skip
    events = read_json(trace, MOST_WRITTEN_BYTES)["traceEvents"]
    return found, [event for event in events if event["ph"] == "X"]


# ---- the all-reduce of a step ----


@dataclass
class Reduced:
    """An all-reduce, and the links that it crosses."""

    seconds: float
    bandwidth: dict[str, float]  # bytes a second
    held: dict[str, float]  # seconds


class AllReduce:
    """Of so many bytes over all devices of a cluster, in buckets of at most `bucket`: a step whose
    parameters are one bucket and what is left behind the last whole one."""

    def __init__(self, cluster: str, devices: int, nbytes: int, bucket: int, folder: Path):
        sizes = {"bucket": min(nbytes, bucket), "rest": nbytes % bucket if nbytes > bucket else 0}
        self._buckets = max(1, nbytes // bucket)
        layers = [Layer(name, 0.0, 0.0, 1.0, float(size), []) for name, size in sizes.items() if size > 0]
        step = LayerStep(layers, "all-reduce", devices)
        graph = folder / "all-reduce.json.gz"
        graph.write_bytes(pack_graph(step.graph))
        self._problem = make_problem(str(graph), cluster, devices, folder)

    def taken(self, profiles=()) -> Reduced:
        shares = dict.fromkeys(self._problem.devices, 1)
        found, events = _simulated(self._problem, shares, profiles)
        seconds = 0.0
        for event in events:
            if event["cat"] == "all-reduce" and event["pid"] == 0:
                whole = "bucket/" in event["name"]
                seconds += 1e-6 * event["dur"] * (self._buckets if whole else 1)
        crossed = [link for link in found["links"] if link["busy_seconds"] > 0]
        return Reduced(
            seconds,
            {link["name"]: link["bytes"] / link["busy_seconds"] for link in crossed},
            {link["name"]: link["busy_seconds"] for link in crossed},
        )

