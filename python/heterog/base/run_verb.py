"""A verb of `heterog` in this process, by the library: its arguments in, what --json prints out."""

import ctypes
import json
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from heterog.base.errors import HeterogError
from heterog.base.native import LOGGER, load_library


def run_verb(arguments: Sequence[str]) -> dict[str, Any]:
    """What `heterog ARGUMENTS --json` would print.

    What it would end with, but for 0, is raised as a HeterogError of that code, whose `result` is
    what had been printed by then, or None. Other Python threads go on meanwhile; those that run
    verbs wait for each other. Ctrl-C ends the verb at its next simulated plan or step.
    """
    # verify trains, and says of a PyTorch without a library what to install.
    library = load_library(planner_will_do=arguments[0] != "verify")
    words = [*arguments, "--json", f"--log-level={_log_level()}"]
    # The memory that the library looks at to know whether to give up.
    stop = ctypes.c_int32(0)
    code, error, text = _interruptible(lambda: _call(library, words, stop), stop)
    output: dict[str, Any] | None = json.loads(text) if text.strip() else None
    if code != 0:
        raised = HeterogError(error, code)
        raised.result = output
        raise raised
    return output or {}


def _call(library: ctypes.CDLL, words: list[str], stop: ctypes.c_int32) -> tuple[int, str, str]:
    given = (ctypes.c_char_p * len(words))(*[_bytes(word) for word in words])
    output = ctypes.c_char_p()
    code = library.heterog_run_verb(given, len(words), ctypes.byref(stop), ctypes.byref(output))
    # Of this thread, until its next call.
    error = library.heterog_last_error().decode(errors="replace") if code else ""
    return code, error, (output.value or b"").decode(errors="replace")


def _bytes(word: str) -> bytes:
    # File names that are no UTF-8 come as they are on the disk.
    encoded = word.encode(errors="surrogateescape")
    if b"\0" in encoded:
        raise HeterogError(f"{word!r}: holds a null character, which no argument and no path may")
    return encoded


def _interruptible(call: Callable[[], Any], stop: ctypes.c_int32) -> Any:
    """A signal reaches Python only between two of its own instructions, in the main thread: it
    waits there for another one, which is inside the library."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    ended: list[Any] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            ended.append(call())
        except BaseException as error:  # noqa: BLE001  raised again below
            failed.append(error)

    thread = threading.Thread(target=run, name="heterog verb")
    try:
        thread.start()
        thread.join()
    except BaseException:
        stop.value = 1
        if thread.ident is not None:
            thread.join()
        raise
    if failed:
        raise failed[0]
    return ended[0]


def _log_level() -> str:
    """Of Python's logger "heterog", in the words of --log-level."""
    wanted = LOGGER.getEffectiveLevel()
    if wanted <= logging.DEBUG:
        return "debug"
    if wanted <= logging.INFO:
        return "info"
    return "warn" if wanted <= logging.WARNING else "error"
