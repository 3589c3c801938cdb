"""heterog: plans and runs synchronous training on devices that are not all alike."""

from heterog.errors import ExportError
from heterog.step import TrainingStep, export_training_step
from heterog.version import VERSION as __version__

__all__ = ["ExportError", "TrainingStep", "__version__", "export_training_step"]
