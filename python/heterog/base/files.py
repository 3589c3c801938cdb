"""Files that nobody ever sees half of."""

import contextlib
import errno
import os
import stat
from pathlib import Path

from heterog.base.errors import HeterogError


def replace_file(path, contents: bytes | bytearray) -> None:
    """Writes beside the target, forces it to the disk, then renames: a crash at any moment leaves
    the old file or the new one. Raises RunFailed where the system refuses it."""
    path = os.fspath(path)
    try:
        put_in_place(path, contents)
    except (OSError, ValueError) as error:  # ValueError: a null character in its name
        raise HeterogError(f"{path} cannot be written: {getattr(error, 'strerror', error)}", 4) from error


def put_in_place(path: str, contents: bytes | bytearray, through_links: bool = True) -> None:
    """The same; what the system refuses is an OSError. A file that is replaced leaves its mode
    and, where that is allowed, its owner to the new one; a link is kept and its target replaced,
    or with `through_links` off replaced itself, as is whatever else stands there.
    """
    if through_links:
        path = os.path.realpath(path)
    try:
        replaced = os.stat(path) if through_links else None
    except FileNotFoundError:
        replaced = None
    if replaced is not None and not stat.S_ISREG(replaced.st_mode):
        with open(path, "wb") as file:  # a device or pipe is written, never replaced
            file.write(contents)
        return
    temporary, handle = _open_beside(path, 0o666 if replaced is None else 0o600)
    try:
        with open(handle, "wb") as file:
            file.write(contents)
            file.flush()
            if replaced is not None:
                _inherit(handle, replaced)
            os.fsync(handle)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(os.path.dirname(path) or ".")


def _open_beside(path: str, mode: int) -> tuple[str, int]:
    """A new file, never one that is there: whoever may write to the folder could have put a link
    in its place."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    for attempt in range(100):
        temporary = f"{path}.{os.getpid()}-{attempt}.tmp"
        with contextlib.suppress(FileExistsError):
            return temporary, os.open(temporary, flags, mode)
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)


def _inherit(handle: int, replaced: os.stat_result) -> None:
    """A file that stays ours must not run as its owner or group: they are others."""
    mode = replaced.st_mode & 0o7777
    own = os.fstat(handle)
    if (own.st_uid, own.st_gid) != (replaced.st_uid, replaced.st_gid):
        try:
            os.fchown(handle, replaced.st_uid, replaced.st_gid)
        except OSError:
            mode &= 0o1777
    os.fchmod(handle, mode)


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
    except (OSError, ValueError) as error:
        raise HeterogError(f"{folder} cannot be made: {getattr(error, 'strerror', error)}", 4) from error
    return folder

