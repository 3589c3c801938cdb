"""What this package raises: one line that says what is wrong, where, and what to do."""


class HeterogError(Exception):
    """A plan cannot be made or run, or was given what does not fit it."""

    def __init__(self, message: str):
        super().__init__(" ".join(message.split()))


class ExportError(HeterogError):
    """A model, its inputs, its loss or its optimizer cannot be exported."""
