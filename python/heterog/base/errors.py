"""What this package raises: one line that says what is wrong, where, and what to do."""

from typing import Any

from heterog.base.version import too_old


class HeterogError(Exception):
    """A plan cannot be made or run, or was given what does not fit it.

    What is raised is the subclass of its `code`, which is the exit code of the program `heterog` for
    the same: InputError (2), NothingFits (3), RunFailed (4), InternalError (1).
    """

    code: int
    # What had been found by then, of a verb that found something: of NothingFits the closest plan or
    # shares, of a failed verification what differs.
    result: Any

    def __new__(cls, message: str = "", code: int = 2):
        # As OSError does by errno.
        return super().__new__(_KINDS.get(code, InternalError) if cls is HeterogError else cls, message)

    def __init__(self, message: str = "", code: int | None = None):
        # What it quotes of files and names of others writes nothing else to a terminal.
        line = " ".join(message.split())
        super().__init__("".join(c if c.isprintable() else "?" for c in line))
        self.code = _code_of(type(self)) if code is None else code
        self.result = None

    def __reduce__(self):
        return type(self), (str(self), self.code), {"result": self.result}


class InputError(HeterogError):
    """Bad usage, a file that makes no sense, a setting out of range."""


class NothingFits(HeterogError):
    """No plan fits in the devices' memory; the message says which of them lacks how much."""


class RunFailed(HeterogError):
    """A run or a verification failed, or its output could not be written."""


class LossNotFinite(RunFailed):
    """The loss of a step is no finite number. All devices have done the step, with what it made of
    the parameters: state_dict(), save(), load() and further steps can follow."""


class InternalError(HeterogError):
    """A bug of heterog."""


class ExportError(InputError):
    """A model, its inputs, its loss or its optimizer cannot be exported."""


class ExporterLimit(ExportError):
    """The exporter met what it cannot do, and does not know why: a limit, or a bug of it."""


_KINDS: dict[int, type[HeterogError]] = {
    1: InternalError,
    2: InputError,
    3: NothingFits,
    4: RunFailed,
}


def _code_of(kind: type[HeterogError]) -> int:
    for code, known in _KINDS.items():
        if issubclass(kind, known):
            return code
    return 2


def raise_if_too_old(cause: Exception) -> None:
    """Something could not be imported: if PyTorch is older than what needs it, that is why."""
    import torch

    if wrong := too_old(torch.__version__):
        raise InputError(wrong) from cause


def unexpected(where: str, error: Exception) -> ExporterLimit:
    """One line for an exception that nobody foresaw."""
    lines = str(error).strip().splitlines() or [""]
    what = f"{type(error).__name__}: {lines[0][:200]}"
    return ExporterLimit(f"{where}: the exporter cannot do this ({what}); please report it")
