"""Says on stderr what a long export is at: nothing where it takes a few seconds, or where
HETEROG_QUIET is set."""

import contextlib
import contextvars
import os
import sys
import threading
import time

PATIENCE = 5.0  # seconds before the first line, and between two

_current: contextvars.ContextVar = contextvars.ContextVar("heterog_progress", default=None)
_said: set[str] = set()


class _Progress:
    def __init__(self, what: str):
        self._what = what
        self._began = time.monotonic()
        self._ended = threading.Event()
        self.phase = "begins"

    def run(self) -> None:
        while not self._ended.wait(PATIENCE):
            _print(f"{self._what}: {self.phase}, {time.monotonic() - self._began:.0f} s so far")

    def end(self) -> None:
        self._ended.set()


@contextlib.contextmanager
def progress(what: str):
    """Lines about `what` while it takes long, from a thread of their own."""
    made = _Progress(what)
    token = _current.set(made)
    thread = threading.Thread(target=made.run, name="heterog progress", daemon=True)
    if not is_quiet():
        thread.start()
    try:
        yield
    finally:
        made.end()
        if thread.is_alive():
            thread.join()
        _current.reset(token)


def phase(text: str) -> None:
    """What is done from now on, in words that go on after a colon."""
    if _current.get() is not None:
        _current.get().phase = text


def say_once(line: str) -> None:
    """A line that a process prints once, however often it is true."""
    if line not in _said:
        _said.add(line)
        if not is_quiet():
            _print(line)


def is_quiet() -> bool:
    return os.environ.get("HETEROG_QUIET", "") not in ("", "0")


def _print(line: str) -> None:
    print(f"heterog: {line}", file=sys.stderr, flush=True)
