"""What this package raises: one line that says what is wrong, where, and what to do."""


class HeterogError(Exception):
    """A plan cannot be made or run, or was given what does not fit it. `code` is the exit code of
    the program `heterog` for the same: 2 bad input, 3 no plan fits, 4 the run failed, 1 a bug."""

    def __init__(self, message: str, code: int = 2):
        super().__init__(" ".join(message.split()))
        self.code = code


class ExportError(HeterogError):
    """A model, its inputs, its loss or its optimizer cannot be exported."""


class ExporterLimit(ExportError):
    """The exporter met what it cannot do, and does not know why: a limit, or a bug of it."""


def unexpected(where: str, error: Exception) -> ExporterLimit:
    """One line for an exception that nobody foresaw."""
    lines = str(error).strip().splitlines() or [""]
    what = f"{type(error).__name__}: {lines[0][:200]}"
    return ExporterLimit(f"{where}: the exporter cannot do this ({what}); please report it")
