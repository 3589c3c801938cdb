"""heterog: plans and runs synchronous training on devices that are not all alike."""

import warnings

import torch

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
from heterog.gradient_weights import weighted_gradients
from heterog.loss_scaling import LossScaling
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
from heterog.step import TrainingStep, export_training_step
from heterog.step_reports import StepCurves, StepLines
from heterog.uneven import UnevenBatchSampler
from heterog.uneven_trainer import uneven_trainer
from heterog.verbs import compare, explain, plan, shares, simulate, verify
from heterog.version import VERSION as __version__
from heterog.version import wrong_torch

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
]

# What needs no library goes on: auto_shares.
if _wrong := wrong_torch(torch.__version__):
    warnings.warn(f"{_wrong}; until then, what plans or runs is refused", stacklevel=2)
