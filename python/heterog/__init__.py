"""heterog: plans and runs synchronous training on devices that are not all alike.

What is named here is loaded when it is first used: `auto_shares` and what else is Python alone runs
with versions of PyTorch that the exporter and the library do not (base/version.py).
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from heterog.base.errors import raise_if_too_old
from heterog.base.version import VERSION as __version__

if TYPE_CHECKING:
    from heterog.base.errors import (
        ExportError,
        HeterogError,
        InputError,
        InternalError,
        LossNotFinite,
        NothingFits,
        RunFailed,
    )
    from heterog.engines.pipeline_stage import PipelineStage, pipeline_stage
    from heterog.export.loss_scaling import LossScaling
    from heterog.export.operators.linear4bit import Linear4bit, with_4bit_base
    from heterog.export.step import export_training_step
    from heterog.export.training_step import TrainingStep
    from heterog.planning.results import (
        Comparison,
        Explanation,
        Plan,
        Shares,
        Simulation,
        Verification,
    )
    from heterog.planning.verbs import compare, explain, plan, shares, simulate, verify
    from heterog.run.checkpoint import Checkpoint, load_checkpoint
    from heterog.run.config import RunnerConfig
    from heterog.run.make_runner import get_runner
    from heterog.run.own_samples import ShareSampler
    from heterog.run.runner import Runner
    from heterog.run.step_reports import StepCurves, StepLines
    from heterog.uneven.ddp_timings import time_ddp
    from heterog.uneven.gradient_weights import weighted_gradients
    from heterog.uneven.measured_shares import auto_shares
    from heterog.uneven.sampler import UnevenBatchSampler
    from heterog.uneven.trainer import uneven_trainer
    from heterog.uneven.zero_by_memory import zero_by_memory

__all__ = [
    "Checkpoint",
    "Comparison",
    "ExportError",
    "Explanation",
    "HeterogError",
    "InputError",
    "InternalError",
    "Linear4bit",
    "LossNotFinite",
    "LossScaling",
    "NothingFits",
    "PipelineStage",
    "Plan",
    "RunFailed",
    "Runner",
    "RunnerConfig",
    "ShareSampler",
    "Shares",
    "Simulation",
    "StepCurves",
    "StepLines",
    "TrainingStep",
    "UnevenBatchSampler",
    "Verification",
    "__version__",
    "auto_shares",
    "compare",
    "explain",
    "export_training_step",
    "get_runner",
    "load_checkpoint",
    "pipeline_stage",
    "plan",
    "shares",
    "simulate",
    "time_ddp",
    "uneven_trainer",
    "verify",
    "weighted_gradients",
    "with_4bit_base",
    "zero_by_memory",
]

# Which module has what: the imports above, for whoever runs this.
_MODULES = {
    "base.errors": ("ExportError", "HeterogError", "InputError", "InternalError", "LossNotFinite",
                    "NothingFits", "RunFailed"),
    "engines.pipeline_stage": ("PipelineStage", "pipeline_stage"),
    "export.loss_scaling": ("LossScaling",),
    "export.operators.linear4bit": ("Linear4bit", "with_4bit_base"),
    "export.step": ("export_training_step",),
    "export.training_step": ("TrainingStep",),
    "planning.results": ("Comparison", "Explanation", "Plan", "Shares", "Simulation", "Verification"),
    "planning.verbs": ("compare", "explain", "plan", "shares", "simulate", "verify"),
    "run.checkpoint": ("Checkpoint", "load_checkpoint"),
    "run.config": ("RunnerConfig",),
    "run.make_runner": ("get_runner",),
    "run.own_samples": ("ShareSampler",),
    "run.runner": ("Runner",),
    "run.step_reports": ("StepCurves", "StepLines"),
    "uneven.ddp_timings": ("time_ddp",),
    "uneven.gradient_weights": ("weighted_gradients",),
    "uneven.measured_shares": ("auto_shares",),
    "uneven.sampler": ("UnevenBatchSampler",),
    "uneven.trainer": ("uneven_trainer",),
    "uneven.zero_by_memory": ("zero_by_memory",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME and not importlib.util.find_spec(f"heterog.{name}"):
        raise AttributeError(f"module 'heterog' has no attribute '{name}'")
    try:
        module = importlib.import_module(f"heterog.{_HOME.get(name, name)}")
    except (ImportError, AttributeError) as error:
        raise_if_too_old(error)
        raise
    value = getattr(module, name) if name in _HOME else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
