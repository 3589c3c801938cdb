"""heterog: plans and runs synchronous training on devices that are not all alike."""

from heterog.checkpoint import Checkpoint, load_checkpoint
from heterog.config import RunnerConfig
from heterog.errors import ExportError, HeterogError
from heterog.gradient_weights import weighted_gradients
from heterog.loss_scaling import LossScaling
from heterog.measured_shares import auto_shares
from heterog.runner import Runner, get_runner
from heterog.step import TrainingStep, export_training_step
from heterog.uneven import UnevenBatchSampler
from heterog.uneven_trainer import uneven_trainer
from heterog.version import VERSION as __version__

__all__ = [
    "Checkpoint",
    "ExportError",
    "HeterogError",
    "LossScaling",
    "Runner",
    "RunnerConfig",
    "TrainingStep",
    "UnevenBatchSampler",
    "__version__",
    "auto_shares",
    "export_training_step",
    "get_runner",
    "load_checkpoint",
    "uneven_trainer",
    "weighted_gradients",
]
