"""What this package raises: one line that says what is wrong, where, and what to do."""


class HeterogError(Exception):
    """A plan cannot be made or run, or was given what does not fit it. `code` is the exit code of
    the program `heterog` for the same: 2 bad input, 3 no plan fits, 4 the run failed, 1 a bug."""

    def __init__(self, message: str, code: int = 2):
        super().__init__(" ".join(message.split()))
        self.code = code


class ExportError(HeterogError):
    """A model, its inputs, its loss or its optimizer cannot be exported."""
