"""Files that are kept from process to process in a folder of the user's own.

Whatever lies there is believed only as far as it is compared: of plain files alone that the user, or
the folder's owner, has written, the bytes are compared with what they should be, or with a digest.
What differs is made anew. No link is followed, to read, to write or to lock: entries have names that
anybody can know beforehand.
"""

import atexit
import contextlib
import fcntl
import functools
import hashlib
import os
import shutil
import stat
import tempfile
from pathlib import Path

from heterog.base.errors import HeterogError
from heterog.base.files import put_in_place
from heterog.base.progress import say_once

MOST_ENTRY_BYTES = 1 << 30
_CHUNK = 1 << 20


def users_folder() -> Path:
    """The cache of this user, where none is given."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "heterog" / "runs"


@functools.cache
def folder_of_process() -> Path:
    """Goes when the process ends."""
    made, process = tempfile.mkdtemp(prefix="heterog-"), os.getpid()

    def remove() -> None:
        if os.getpid() == process:  # no child of it
            shutil.rmtree(made, ignore_errors=True)

    atexit.register(remove)
    return Path(made)


def make_cache_folder(path) -> Path:
    """A folder that is made is the user's alone; one that is there stays as it is."""
    folder = Path(path)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise HeterogError(f"{folder} cannot be made: {getattr(error, 'strerror', error)}", 4) from error
    return folder


def make_entry_folder(path: Path) -> Path:
    """The same within a cache, where no link leads to another folder."""
    with contextlib.suppress(OSError):
        if path.is_symlink():
            path.unlink()
    return make_cache_folder(path)


@contextlib.contextmanager
def open_entry(path: Path):
    """The file as a stream, and its size; None where it is no plain file, or of somebody else."""
    try:
        # A pipe in its place would be waited for.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        status = os.fstat(handle)
        owners = (os.geteuid(), os.stat(path.parent).st_uid)
        plain = stat.S_ISREG(status.st_mode) and status.st_uid in owners
        if plain and status.st_size <= MOST_ENTRY_BYTES:
            with open(handle, "rb", closefd=False) as file:
                yield file, status.st_size
        else:
            yield None
    finally:
        os.close(handle)


def is_kept(path: Path, contents: bytes) -> bool:
    """Whether the file holds these bytes."""
    with open_entry(path) as found:
        return found is not None and found[1] == len(contents) and found[0].read(len(contents) + 1) == contents


def digest_of(path: Path) -> str | None:
    """SHA-256 of what it holds; None where open_entry has none."""
    with open_entry(path) as found:
        return None if found is None else stream_digest(found[0])


def stream_digest(file) -> str:
    """Of the rest of a stream, of any length."""
    hasher = hashlib.sha256()
    while piece := file.read(_CHUNK):
        hasher.update(piece)
    return hasher.hexdigest()


def keep(path: Path, contents: bytes) -> None:
    """Puts the bytes there, whole or not at all, in place of whatever is there, a link too."""
    try:
        put_in_place(os.fspath(path), contents, through_links=False)
    except OSError as error:
        raise HeterogError(f"{path} cannot be written: {error.strerror}", 4) from error


def kept(path: Path, contents: bytes) -> str:
    """A file with these bytes: the one that is there, if it has them."""
    if not is_kept(path, contents):
        keep(path, contents)
    return str(path)


@contextlib.contextmanager
def locked(path):
    """One process of this host at a time. Where no lock can be had, as on some network file systems
    or where a link stands in its place, that is said: work is then done twice, and is right."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    handle = None
    try:
        handle = os.open(path, flags, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError as error:
        say_once(f"{path}: cannot be locked ({error.strerror}); other processes may do the same work")
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)
