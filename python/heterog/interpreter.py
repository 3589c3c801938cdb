"""What executes an exported graph operator by operator, by the name that docs/exporting.md gives it."""

from heterog.export.interpreter import initial_values, run_step

__all__ = ["initial_values", "run_step"]
