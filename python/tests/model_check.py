"""Trains a generated model in plain PyTorch and by a runner under drawn strategies, and compares.

The outcome of a model is one of
    equal       five steps agree to 1e-9, under every strategy; of a model that draws random numbers,
                whose draws are not PyTorch's, with those of one device
    refused     by name: an error of heterog that says what cannot be done
    different   what must not be
    failed      an exception that is no refusal, or a code that means a bug
    unstable    PyTorch alone turns a change of 1e-14 into one of 1e-11: nothing can be compared
    invalid     PyTorch alone cannot run it
"""

import copy
import json
import random
import re
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch

from heterog.base.errors import HeterogError
from heterog.export.graph.samples import input_names
from heterog.export.graph.writer import pack_graph
from heterog.export.interpreter import initial_values, run_step
from heterog.export.operators.draws import BY_COUNTER
from heterog.export.step import export_training_step
from heterog.planning.devices import cluster_file
from heterog.run.config import read_config
from heterog.run.prepare import RunFiles

STEPS = 5
TOLERANCE = 1e-9
# A tensor below this share of all of its kind is held to their norm (docs/verifying.md).
SMALL = 1e-6


@dataclass
class Outcome:
    kind: str
    detail: str = ""
    plan: str = ""


@dataclass
class State:
    """What a model has become: tensors by name, of each kind."""

    losses: list[float]
    kinds: dict[str, dict[str, torch.Tensor]]


class Made:
    """A model's source, run."""

    def __init__(self, source: str):
        names: dict = {}
        exec(compile(source, "model", "exec"), names)
        self.batch: int = names["BATCH"]
        self.config: dict = names["CONFIG"]
        self.make_inputs = names["make_inputs"]
        self.loss_fn = names["loss_fn"]
        self.build = names["build"]
        self.make_optimizer = names["make_optimizer"]

    def batches(self) -> list[tuple]:
        made = []
        for number in range(STEPS):
            torch.manual_seed(100 + number)
            made.append(self.make_inputs(self.batch))
        return made


def train_plainly(made: Made, shift: float = 0.0) -> State:
    """Five steps of PyTorch. `shift`: by how much, relatively, the first weights are moved."""
    model = made.build()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 1 + shift * torch.randn_like(parameter)
    optimizer = made.make_optimizer(model)
    losses = []
    for inputs in made.batches():
        optimizer.zero_grad()
        loss = made.loss_fn(model, *inputs)
        loss.backward()
        if "clip_norm" in made.config:
            torch.nn.utils.clip_grad_norm_(model.parameters(), made.config["clip_norm"])
        optimizer.step()
        losses.append(loss.item())
    return _state_of(model, optimizer.state_dict(), losses)


def _state_of(model, optimizer: dict, losses: list[float]) -> State:
    states = {
        f"{number}/{key}": torch.as_tensor(value).clone()
        for number, entry in optimizer["state"].items()
        for key, value in entry.items()
        if value is not None
    }
    kinds = {
        "parameter": {n: p.detach().clone() for n, p in model.named_parameters()},
        "buffer": {n: b.clone() for n, b in model.named_buffers()},
        "optimizer state": states,
    }
    return State(losses, kinds)


def differences(found: State, expected: State) -> list[tuple[float, str]]:
    """How far off each tensor is, the worst first."""
    listed = []
    for number, (a, b) in enumerate(zip(found.losses, expected.losses, strict=True)):
        listed.append((abs(a - b) / max(abs(b), 1e-3), f"loss of step {number + 1}"))
    for kind, tensors in expected.kinds.items():
        others = found.kinds[kind]
        if others.keys() != tensors.keys():
            listed.append((float("inf"), f"names of {kind}: {sorted(others.keys() ^ tensors.keys())}"))
            continue
        floating = [t.double() for t in tensors.values() if t.is_floating_point()]
        everything = sum(t.norm().item() ** 2 for t in floating) ** 0.5
        for name, value in tensors.items():
            other = others[name]
            if other.shape != value.shape or other.dtype != value.dtype:
                listed.append((float("inf"), f"form of {kind} {name}"))
            elif not value.is_floating_point():
                listed.append((0.0 if torch.equal(other, value) else float("inf"), f"{kind} {name}"))
            else:
                norm = value.norm().item()
                norm = norm if norm > SMALL * everything else everything
                off = (other - value).norm().item()
                listed.append((off / norm if off else 0.0, f"{kind} {name}"))
    return sorted(((e if e == e else float("inf")), what) for e, what in listed)[::-1]


def check(source: str, seed: int, cache: Path, strategies: int = 2) -> Outcome:
    """The outcome of one model."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _check(source, seed, cache, strategies)
    except Exception:
        return Outcome("failed", traceback.format_exc())


def _check(source: str, seed: int, cache: Path, strategies: int) -> Outcome:
    try:
        made = Made(source)
        expected = train_plainly(made)
    except Exception as error:
        return Outcome("invalid", f"{type(error).__name__}: {error}")
    if not all(abs(loss) < 1e6 for loss in expected.losses):  # or no number
        return Outcome("unstable", f"losses {expected.losses}")
    model = made.build()
    optimizer = made.make_optimizer(model)
    try:
        step = export_training_step(
            model, made.make_inputs, made.loss_fn, optimizer, "model",
            double=True, batch=made.batch,
            check=False,  # what it would find is to be found here
            **made.config,
        )  # fmt: skip
    except HeterogError as error:
        return Outcome("refused", f"export: {error}")
    graph = step.graph
    path = cache / f"graph-{seed}.json.gz"
    path.write_bytes(pack_graph(graph))
    rng = random.Random(f"{seed}/plans")
    like = expected
    if any(op["op"] in BY_COUNTER for op in graph["ops"]):
        like = _under(made, step, path, _on_one_device(graph, made.batch), cache)
        if isinstance(like, Outcome):
            return like
    for number in range(strategies):
        plan = _draw_plan(rng, graph, made.batch, number)
        outcome = _under(made, step, path, plan, cache)
        if isinstance(outcome, State):
            outcome = _compared(outcome, like, plan)
        if outcome.kind == "different" and _is_unstable(made, expected):
            return Outcome("unstable", outcome.detail)
        if outcome.kind != "equal":
            return outcome
    return Outcome("equal")


def _compared(found: State, expected: State, plan: dict) -> Outcome:
    worst = differences(found, expected)
    if worst[0][0] > TOLERANCE:
        return Outcome("different", f"{worst[0][1]} is off by {worst[0][0]:.1e}", _shown(plan))
    return Outcome("equal")


def _is_unstable(made: Made, expected: State) -> bool:
    torch.manual_seed(0)
    moved = differences(train_plainly(made, 1e-14), expected)[0][0]
    return moved > 1e-11


def by_interpreter(source: str) -> list[tuple[float, str]]:
    """The exported step, run whole by the plain interpreter, against PyTorch: whose mistake it is."""
    made = Made(source)
    expected = train_plainly(made)
    model = made.build()
    optimizer = made.make_optimizer(model)
    graph = export_training_step(
        model, made.make_inputs, made.loss_fn, optimizer, "model",
        double=True, batch=made.batch, check=False, **made.config,
    ).graph  # fmt: skip
    names = input_names(made.loss_fn, made.make_inputs)
    values = initial_values(graph, dict(model.named_parameters()) | dict(model.named_buffers()))
    losses = []
    for number, inputs in enumerate(made.batches()):
        given = dict(zip(names, inputs, strict=True))
        loss, values = run_step(
            graph, values, given, made.batch, lr=optimizer.param_groups[0]["lr"], step=number + 1
        )
        losses.append(float(loss))
    kinds = {
        kind: {name: values[name] for name in expected.kinds[kind] if name in values}
        for kind in ("parameter", "buffer")
    }
    wanted = State(expected.losses, {k: {n: expected.kinds[k][n] for n in kinds[k]} for k in kinds})
    return differences(State(losses, kinds), wanted)


# ---- plans ----


def _on_one_device(graph: dict, batch: int) -> dict:
    decision = {"devices": ["local/gpu0"], "weights": [1.0], "sync": "all-reduce"}
    return _plan(batch, 2, [decision], [0] * len(graph["ops"]))


def _shown(plan: dict) -> str:
    return json.dumps({key: plan[key] for key in ("decisions", "sync", "order")})


def _plan(batch: int, devices: int, decisions: list, units: list, **others) -> dict:
    return {
        "format": "heterog-plan",
        "version": 3,
        "planner": "drawn",
        "graph": {"name": "model", "hash": "0" * 16},
        "cluster": {"name": "local", "hash": "0" * 16},
        "batch": batch,
        "max_groups": 2000,
        "predicted": {"step_seconds": 0, "feasible": True, "devices": []},
        "order": "rank",
        "bucket_bytes": 0,
        "sync": [],
        "decisions": decisions,
        "units": list(range(len(decisions))),
        "unit_of_op": [[unit, 1] for unit in units],
        "number_of_devices": devices,
    } | others


def _draw_plan(rng: random.Random, graph: dict, batch: int, number: int) -> dict:
    """The first of a model is uneven everywhere or even, the others are mixes by operator."""
    devices = rng.choice((2, 2, 3, 4))
    names = [f"local/gpu{index}" for index in range(devices)]

    def decision() -> dict:
        chosen = rng.sample(names, rng.choice((1, devices, devices, devices, rng.randint(1, devices))))
        weights = rng.choice(([1.0] * devices, [1.0, 7.0, 2.0, 4.0], [7.0, 1.0, 1.0, 3.0]))
        return {
            "devices": chosen,
            "weights": weights[: len(chosen)],
            "sync": rng.choice(("ps", "all-reduce")),
        }

    ops = len(graph["ops"])
    if number == 0:
        whole = {"devices": names, "weights": rng.choice(([1.0] * 4, [1.0, 7.0, 2.0, 4.0]))[:devices]}
        decisions = [whole | {"sync": rng.choice(("ps", "all-reduce"))}]
        units = [0] * ops
    else:
        decisions = [decision() for _ in range(rng.choice((2, 3, 5, 8)))]
        runs = [0] + sorted(rng.randrange(ops) for _ in range(rng.choice((1, 3, 10, ops))))
        units, chosen = [], 0
        for place in range(ops):
            if place in set(runs):
                chosen = rng.randrange(len(decisions))
            units.append(chosen)
    parameters = [t["name"] for t in graph["tensors"] if t["role"] == "parameter"]
    sync = [
        {"parameter": name, "method": rng.choice(("ps", "all-reduce"))}
        for name in parameters
        if rng.random() < 0.1
    ]
    order, bucket = rng.choice(("rank", "rank-queued", "fifo")), rng.choice((0, 0, 1000))
    return _plan(batch, devices, decisions, units, order=order, bucket_bytes=bucket, sync=sync)


_HASHES: dict = {}  # of clusters


def _not_traced_again(_number: int, batches: tuple[int, ...]):
    raise HeterogError(f"a drawn model's graph is not known to hold at {batches[-1]} samples")


def _under(made: Made, step, graph_path: Path, plan: dict, cache: Path) -> Outcome | State:
    """What five steps by the plan come to, or why there are none."""
    from heterog.run.runner import Made as RunnerMade
    from heterog.run.runner import Runner
    from heterog.run.untraced import Untraced

    plan = dict(plan)
    cluster = cluster_file(f"cpu:{plan.pop('number_of_devices')}", cache)
    plan["cluster"] = {"name": "local", "hash": _HASHES.get(cluster, "0" * 16)}
    path = graph_path.with_suffix(".plan.json")
    config = read_config({"batch": made.batch, "threads": 1, "cache": str(cache), "double": True})
    model = made.build()
    optimizer = made.make_optimizer(model)
    files = RunFiles([str(graph_path)], cluster, str(path))
    shown = _shown(plan)
    for _ in range(3):
        # The library says what the hashes are.
        path.write_text(json.dumps(plan))
        try:
            runner = Runner(
                model, optimizer, made.loss_fn, [made.make_inputs],
                lambda: RunnerMade([step], files, Untraced([step], _not_traced_again)), read_config(config),
            )  # fmt: skip
            break
        except HeterogError as error:
            found = re.search(r"(graph|cluster)\.hash: .*this \1 is ([0-9a-f]{16})", str(error))
            if not found:
                return _stopped(error, "open", shown)
            plan[found[1]] = {"name": plan[found[1]]["name"], "hash": found[2]}
            if found[1] == "cluster":
                _HASHES[cluster] = found[2]
    with runner:
        try:
            losses = [runner.step(inputs) for inputs in made.batches()]
            runner.sync_to_model()
            state = runner.optimizer_state_dict()
        except HeterogError as error:
            return _stopped(error, "run", shown)
    return _state_of(model, copy.deepcopy(state), losses)


def _stopped(error: HeterogError, when: str, plan: str) -> Outcome:
    # What runs at all must run to the end; input that is refused has code 2.
    kind = "refused" if when == "open" and getattr(error, "code", 2) == 2 else "failed"
    return Outcome(kind, f"{when}: {error}", plan)
