"""Lets threads of process groups let go of Python functions before Python ends.

What `Future.then` is given is called, and let go of, by the thread that completed the future: of a
process group of gloo, one of its own. Letting go takes Python's lock. Where the last step is hardly
over when the script ends, and the thread is slow to get a processor, Python is ending by then: it
ends the thread where it stands, and C++ answers with "terminate called without an active exception"
and SIGABRT, after a training that went well.
"""

import atexit
import time
import weakref
from collections.abc import Callable

_PATIENCE = 10.0  # seconds, of a thread that never lets go
_held: "weakref.WeakSet[Callable]" = weakref.WeakSet()


def released_before_the_end(function: Callable) -> Callable:
    """The function, which has to be a new one: the process does not end while somebody else has it."""
    _held.add(function)
    return function


@atexit.register
def _wait() -> None:
    end = time.monotonic() + _PATIENCE
    while len(_held) and time.monotonic() < end:
        time.sleep(0.001)
