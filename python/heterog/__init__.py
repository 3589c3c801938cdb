"""heterog: plans and runs synchronous training on devices that are not all alike.

What is named here is loaded when it is first used: `auto_shares` and what else is Python alone runs
with versions of PyTorch that the exporter and the library do not (version.py).
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from heterog.errors import raise_if_too_old
from heterog.version import VERSION as __version__

if TYPE_CHECKING:
    from heterog.checkpoint import Checkpoint, load_checkpoint
    from heterog.config import RunnerConfig
    from heterog.errors import (
        ExportError,
        HeterogError,
        InputError,
        InternalError,
        LossNotFinite,
        NothingFits,
        RunFailed,
    )
    from heterog.export.loss_scaling import LossScaling
    from heterog.export.step import export_training_step
    from heterog.export.training_step import TrainingStep
    from heterog.gradient_weights import weighted_gradients
    from heterog.make_runner import get_runner
    from heterog.measured_shares import auto_shares
    from heterog.own_samples import ShareSampler
    from heterog.results import (
        Comparison,
        Explanation,
        Plan,
        Shares,
        Simulation,
        Verification,
    )
    from heterog.runner import Runner
    from heterog.step_reports import StepCurves, StepLines
    from heterog.uneven import UnevenBatchSampler
    from heterog.uneven_trainer import uneven_trainer
    from heterog.verbs import compare, explain, plan, shares, simulate, verify
    from heterog.zero_by_memory import zero_by_memory

__all__ = [
    "Checkpoint",
    "Comparison",
    "ExportError",
    "Explanation",
    "HeterogError",
    "InputError",
    "InternalError",
    "LossNotFinite",
    "LossScaling",
    "NothingFits",
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
    "plan",
    "shares",
    "simulate",
    "uneven_trainer",
    "verify",
    "weighted_gradients",
    "zero_by_memory",
]

# Which module has what: the imports above, for whoever runs this.
_MODULES = {
    "checkpoint": ("Checkpoint", "load_checkpoint"),
    "config": ("RunnerConfig",),
    "errors": ("ExportError", "HeterogError", "InputError", "InternalError", "LossNotFinite",
               "NothingFits", "RunFailed"),
    "gradient_weights": ("weighted_gradients",),
    "export.loss_scaling": ("LossScaling",),
    "make_runner": ("get_runner",),
    "measured_shares": ("auto_shares",),
    "own_samples": ("ShareSampler",),
    "results": ("Comparison", "Explanation", "Plan", "Shares", "Simulation", "Verification"),
    "runner": ("Runner",),
    "export.step": ("export_training_step",),
    "step_reports": ("StepCurves", "StepLines"),
    "export.training_step": ("TrainingStep",),
    "uneven": ("UnevenBatchSampler",),
    "uneven_trainer": ("uneven_trainer",),
    "verbs": ("compare", "explain", "plan", "shares", "simulate", "verify"),
    "zero_by_memory": ("zero_by_memory",),
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
