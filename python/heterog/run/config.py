"""The settings of get_runner: one list for defaults, checks and documentation."""

import math
import os
from dataclasses import dataclass, field, fields
from pathlib import Path

from heterog.base.cache_files import folder_of_process, users_folder
from heterog.base.errors import HeterogError
from heterog.export.loss_scaling import LossScaling


@dataclass
class RunnerConfig:
    """All that get_runner's `config` may hold.

    What is planned:
    batch           samples of one step, over all devices; None: those of `plan`
    plan            a plan file made before, or a heterog.Plan; None: one is made
    planner         one of `heterog planners`, with options as "NAME:option=value"; None: the best
                    that is found in one shot
    budget          seconds to go on planning
    evaluations     or so many simulated plans: the same plan every time
    policy          checkpoint of planner "policy"; None: the shipped one
    profile         measured costs (`heterog profile`): a file, or a list, one a type of device
    collectives     "per-device": all-reduces of disjoint devices may overlap; "serial": none may
    accumulate      micro-batches of a step, over which gradients are accumulated

    How it is run:
    seed            of dropout, of planning, and of the batches that run() makes itself
    threads         of one operator of one device; 0: an equal share of the processors
    slow            name of a device → how often it repeats its work, to try out unequal devices
    processes       True: this process is one rank; False: devices are threads of it; None: as the
                    variables of torchrun, Slurm or mpirun say
    any_device      what runs may be other devices than the plan's, a CPU for GPUs too
    tune_process    the library may set malloc, c10d's log level and NCCL for this whole process
    timeout         seconds of one wait for another process
    on_change       what is done where the program has changed what the step is (a mode, a frozen
                    parameter, a number that the loss reads): "refuse", or "export" it anew
    transport       by what tensors travel between processes: "tcp", or "gloo", that of torch

    What is exported, as export_training_step says:
    name            of the graph
    batches         batch sizes to trace at; None: 2, 3 and `batch`
    dropout         False: as if every dropout rate were 0
    double          parameters and floating inputs in float64
    autocast        "bfloat16" or "float16": forward and loss under torch.autocast
    param_dtype     "bfloat16" or "float16": forward and backward with copies of the parameters
    reduce_dtype    with param_dtype, in what precision gradients are summed over devices
    loss_scaling    a LossScaling or a dict of its fields; None: with float16 alone; False: never
    clip_norm       gradients are scaled to at most this global 2-norm
    gradient_norm   their global 2-norm, before that, is among Runner.outputs()
    batch_norm      "exact": statistics of the whole batch; "per-slice": of each slice, but
                    for models with nn.SyncBatchNorm
    attention       "one": scaled_dot_product_attention is one operator; "math": written out
    momentum_input  the momentum is read at each step, as the learning rate is
    fused_update    Adam, AdamW and SGD by PyTorch's fused kernels
    check           compares the graph with PyTorch. True: always; False: never; None: if that takes
                    a few seconds

    Where files go:
    cache           a folder; None: heterog/runs in the user's cache; False: nothing is kept from
                    process to process
    graph           the graph file to write; None: in the cache
    """

    batch: int | None = None
    plan: "str | os.PathLike[str] | None" = None
    planner: str | None = None
    budget: float | None = None
    evaluations: int | None = None
    policy: "str | os.PathLike[str] | None" = None
    profile: "str | os.PathLike[str] | list[str]" = field(default_factory=list)
    collectives: str = "per-device"
    accumulate: int = 1

    seed: int = 0
    threads: int = 0
    slow: dict[str, int] = field(default_factory=dict)
    processes: bool | None = None
    any_device: bool = False
    tune_process: bool = False
    timeout: float = 300.0
    on_change: str = "refuse"
    transport: str = "tcp"

    name: str = "model"
    batches: tuple[int, ...] | None = None
    dropout: bool = True
    double: bool = False
    autocast: str | None = None
    param_dtype: str | None = None
    reduce_dtype: str | None = None
    loss_scaling: "LossScaling | dict | bool | None" = None
    clip_norm: float | None = None
    gradient_norm: bool = False
    batch_norm: str = "per-slice"
    attention: str = "one"
    momentum_input: bool = False
    fused_update: bool = True
    check: bool | None = None

    cache: "str | os.PathLike[str] | bool | None" = None
    graph: "str | os.PathLike[str] | None" = None

    @property
    def profiles(self) -> list[str]:
        if isinstance(self.profile, (str, os.PathLike)):
            return [os.fspath(self.profile)]
        return [os.fspath(path) for path in self.profile]

    @property
    def folder(self) -> Path:
        if self.cache is False:
            return folder_of_process()
        if isinstance(self.cache, (str, os.PathLike)):
            return Path(self.cache)
        return users_folder()


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
    "on_change": (lambda value: value in ("refuse", "export"), "'refuse' or 'export'"),
    "transport": (lambda value: isinstance(value, str), "the name of a transport: 'tcp', 'gloo'"),
    "batches": (_maybe(lambda value: isinstance(value, (list, tuple))), "a list of batch sizes"),
    "check": (_maybe(_YES_OR_NO[0]), "True, False or None"),
    "dropout": _YES_OR_NO,
    "double": _YES_OR_NO,
    "momentum_input": _YES_OR_NO,
    "gradient_norm": _YES_OR_NO,
    "clip_norm": (_maybe(_is_number), "a number"),
    "cache": (lambda value: value is False or _PATH[0](value), "a path, or False"),
    "graph": _PATH,
}
