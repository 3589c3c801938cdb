"""The settings of get_runner: one list for defaults, checks and documentation."""

import atexit
import functools
import math
import os
import shutil
import tempfile
from dataclasses import dataclass, field, fields
from pathlib import Path

from heterog.errors import HeterogError


@dataclass
class RunnerConfig:
    """All that get_runner's `config` may hold."""

    # What is planned.
    batch: int | None = None  # samples of one step, over all devices; a given plan's own if None
    plan: str | None = None  # a plan file made before; else one is made
    planner: str | None = None  # of `heterog planners`; None: the best that is found in one shot
    budget: float | None = None  # seconds to go on planning
    evaluations: int | None = None  # or so many simulated plans: the same plan every time
    policy: str | None = None  # checkpoint of the learned planner; None: the shipped one
    profile: str | list[str] = field(default_factory=list)  # measured costs (heterog profile)
    collectives: str = "per-device"
    accumulate: int = 1  # micro-batches of a step, over which gradients are accumulated
    # How it is run.
    seed: int = 0  # of dropout, of planning, and of the batches that run() makes itself
    threads: int = 0  # of one operator of one device; 0: an equal share of the processors
    slow: dict[str, int] = field(default_factory=dict)  # device → how often it repeats its work
    processes: bool | None = None  # one process a device; None: if a starter says so
    any_device: bool = False  # what runs may be other devices than the plan's, a CPU for GPUs too
    tune_process: bool = False  # may set malloc, c10d's log level and NCCL for this whole process
    timeout: float = 300.0  # seconds of one wait for another process
    transport: str = "tcp"  # by what tensors travel between processes; "gloo": that of torch
    # What is exported, as in export_training_step.
    name: str = "model"
    batches: tuple[int, ...] | None = None  # None: 2, 3 and `batch`
    dropout: bool = True
    double: bool = False
    autocast: str | None = None
    param_dtype: str | None = None
    reduce_dtype: str | None = None
    loss_scaling: "dict | bool | None" = None
    clip_norm: float | None = None
    batch_norm: str = "per-slice"
    attention: str = "one"
    momentum_input: bool = False
    fused_update: bool = True
    check: bool | None = None
    # Where files go.
    # A folder; None: heterog/runs in the user's cache; False: nothing is kept from process to process.
    cache: "str | bool | None" = None
    graph: str | None = None  # the graph file to write; None: in the cache

    @property
    def profiles(self) -> list[str]:
        one = isinstance(self.profile, (str, os.PathLike))
        return [os.fspath(path) for path in ([self.profile] if one else self.profile)]

    @property
    def folder(self) -> Path:
        if self.cache is False:
            return _folder_of_process()
        if self.cache is not None:
            return Path(self.cache)
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(base) / "heterog" / "runs"


@functools.cache
def _folder_of_process() -> Path:
    """Goes when the process ends."""
    made, process = tempfile.mkdtemp(prefix="heterog-"), os.getpid()

    def remove() -> None:
        if os.getpid() == process:  # no child of it
            shutil.rmtree(made, ignore_errors=True)

    atexit.register(remove)
    return Path(made)


def read_config(config) -> RunnerConfig:
    """From a dict, a RunnerConfig or None."""
    if isinstance(config, RunnerConfig):
        made = config
    elif config is None or isinstance(config, dict):
        known = [f.name for f in fields(RunnerConfig)]
        for key in config or {}:
            if key not in known:
                raise HeterogError(f"config: {key!r} is not known; known are {', '.join(known)}")
        made = RunnerConfig(**(config or {}))
    else:
        raise HeterogError(f"config: {type(config).__name__} given; it is a dict")
    for name, (fits, what) in _SETTINGS.items():
        value = getattr(made, name)
        if not fits(value):
            raise HeterogError(f"config: {name} {_shown(value)}; it is {what}")
    if made.batch is None and made.plan is None:
        raise HeterogError("config: give 'batch', the samples of one step over all devices")
    if made.plan is not None and made.accumulate > 1:
        raise HeterogError(
            f"config: accumulate {made.accumulate} given beside a plan, which says that itself: "
            "`heterog plan --accumulate` makes such a plan"
        )
    if made.budget is not None and made.evaluations is not None:
        raise HeterogError("config: give 'budget' or 'evaluations', and not both")
    return made


def _shown(value) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _is_whole(value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_path(value) -> bool:
    return isinstance(value, (str, os.PathLike)) and os.fspath(value) != ""


def _whole(least: int, below: int):
    return lambda value: _is_whole(value) and least <= value < below


def _maybe(fits):
    return lambda value: value is None or fits(value)


_YES_OR_NO = (lambda value: isinstance(value, bool), "True or False")
_PATH = (_maybe(_is_path), "a path")
# What each setting must be, and how that is said. What the exporter checks itself is not here.
_SETTINGS = {
    "batch": (_maybe(_whole(1, 2**31)), "a number of samples, 1 or more"),
    "plan": _PATH,
    "planner": (_maybe(lambda value: isinstance(value, str)), "a name of `heterog planners`"),
    "budget": (_maybe(lambda value: _is_number(value) and value > 0), "a number of seconds above 0"),
    "evaluations": (_maybe(_whole(1, 2**31)), "a number of simulated plans, 1 or more"),
    "policy": _PATH,
    "profile": (
        lambda value: _is_path(value)
        or (isinstance(value, (list, tuple)) and all(_is_path(path) for path in value)),
        "a path or a list of paths",
    ),
    "collectives": (lambda value: value in ("per-device", "serial"), "'per-device' or 'serial'"),
    "accumulate": (_whole(1, 2**20), "a number of micro-batches, 1 or more"),
    "seed": (_whole(0, 2**63), "a whole number, 0 or more"),
    "threads": (_whole(0, 2**16), "a number of threads, or 0 for a share"),
    "slow": (
        lambda value: isinstance(value, dict)
        and all(isinstance(k, str) and _is_whole(v) and 1 <= v <= 1000 for k, v in value.items()),
        "a dict: the name of a device, and that it does its work 1 to 1000 times",
    ),
    "processes": (_maybe(_YES_OR_NO[0]), "True, False or None"),
    "any_device": _YES_OR_NO,
    "tune_process": _YES_OR_NO,
    "timeout": (lambda value: _is_number(value) and 0.001 <= value <= 1e6, "a number of seconds"),
    "transport": (lambda value: isinstance(value, str), "the name of a transport: 'tcp', 'gloo'"),
    "batches": (_maybe(lambda value: isinstance(value, (list, tuple))), "a list of batch sizes"),
    "check": (_maybe(_YES_OR_NO[0]), "True, False or None"),
    "dropout": _YES_OR_NO,
    "double": _YES_OR_NO,
    "momentum_input": _YES_OR_NO,
    "clip_norm": (_maybe(_is_number), "a number"),
    "cache": (lambda value: value is False or _PATH[0](value), "a path, or False"),
    "graph": _PATH,
}
