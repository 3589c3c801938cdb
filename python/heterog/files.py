"""Files that nobody ever sees half of, and locks between processes of one host."""

import contextlib
import fcntl
import os
from pathlib import Path

from heterog.errors import HeterogError


def replace_file(path, contents: bytes) -> None:
    """Writes beside the target, forces it to the disk, then renames: a crash at any moment leaves
    the old file or the new one."""
    path = os.fspath(path)
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "wb") as file:
            file.write(contents)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(os.path.dirname(path) or ".")
    except OSError as error:
        raise HeterogError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def _sync_folder(folder: str) -> None:
    """Makes a rename last."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(path) -> Path:
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HeterogError(f"{folder} cannot be made: {error.strerror}") from error
    return folder


@contextlib.contextmanager
def locked(path):
    """One process of this host at a time."""
    with open(path, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
