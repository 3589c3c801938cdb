"""The settings of get_runner: one list for defaults, checks and documentation."""

import os
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
    # How it is run.
    seed: int = 0  # of dropout, of planning, and of the batches that run() makes itself
    threads: int = 0  # of one operator of one device; 0: an equal share of the processors
    slow: dict[str, int] = field(default_factory=dict)  # device → how often it repeats its work
    processes: bool | None = None  # one process a device; None: if a starter says so
    any_device: bool = False  # processes may be other devices than the plan's
    timeout: float = 300.0  # seconds of one wait for another process
    # What is exported, as in export_training_step.
    name: str = "model"
    batches: tuple[int, ...] | None = None  # None: 2, 3 and `batch`
    dropout: bool = True
    double: bool = False
    autocast: str | None = None
    clip_norm: float | None = None
    batch_norm: str = "per-slice"
    check: bool | None = None
    # Where files go.
    cache: str | None = None  # folder; None: heterog/runs in the user's cache
    graph: str | None = None  # the graph file to write; None: in the cache

    @property
    def profiles(self) -> list[str]:
        one = isinstance(self.profile, (str, os.PathLike))
        return [os.fspath(path) for path in ([self.profile] if one else self.profile)]

    @property
    def folder(self) -> Path:
        if self.cache is not None:
            return Path(self.cache)
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(base) / "heterog" / "runs"


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
    if made.batch is None and made.plan is None:
        raise HeterogError("config: give 'batch', the samples of one step over all devices")
    if made.batch is not None and (not isinstance(made.batch, int) or made.batch < 1):
        raise HeterogError(f"config: batch {made.batch!r}; it is a number of samples, 1 or more")
    if made.budget is not None and made.evaluations is not None:
        raise HeterogError("config: give 'budget' or 'evaluations', and not both")
    if made.collectives not in ("per-device", "serial"):
        raise HeterogError(f"config: collectives {made.collectives!r}; 'per-device' or 'serial'")
    if not isinstance(made.seed, int) or not 0 <= made.seed < 2**63:
        raise HeterogError(f"config: seed {made.seed!r}; it is a whole number, 0 or more")
    return made
