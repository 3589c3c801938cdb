"""heterog: plans and runs synchronous training on devices that are not all alike."""

from heterog.errors import ExportError
from heterog.step import TrainingStep, export_training_step
from heterog.uneven import UnevenBatchSampler, weighted_gradients
from heterog.version import VERSION as __version__

__all__ = [
    "ExportError",
    "TrainingStep",
    "UnevenBatchSampler",
    "__version__",
    "export_training_step",
    "weighted_gradients",
]
