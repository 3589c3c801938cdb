"""Lets threads of process groups let go of Python's objects before Python ends.

A tensor that was summed over the ranks is let go of by the thread that summed it, too: of a process
group of gloo, one of its own. If Python has seen the tensor, letting go takes Python's lock. Where the
last step is hardly over when the script ends, and the thread is slow to get a processor, Python is
ending by then: it ends the thread where it stands, and C++ answers with "terminate called without an
active exception" and SIGABRT, after a training that went well.
"""

import atexit
import time
import weakref
from collections import deque
from typing import TypeVar

Held = TypeVar("Held")
_PATIENCE = 2.0  # seconds, of a thread that never lets go, or a script that holds on
# Seconds more, for what the thread lets go of after that, which nothing here sees.
_GRACE = 0.1
_held: dict[int, weakref.ref] = {}
# What calls it is C, so that the thread that lets go cannot lose Python's lock half-way, and be
# ended there after all: whoever sees a reference here has the lock back from that thread.
_released: "deque[weakref.ref]" = deque()


def _forget_released() -> None:
    while _released:
        del _held[id(_released.popleft())]


def released_before_the_end(thing: Held) -> Held:
    """The tensor or function, which has to be a new one: the process does not end while somebody else
    has it."""
    _forget_released()
    reference = weakref.ref(thing, _released.append)
    _held[id(reference)] = reference
    return thing


@atexit.register
def _wait() -> None:
    end = time.monotonic() + _PATIENCE
    used = bool(_held)
    _forget_released()
    while _held and time.monotonic() < end:
        time.sleep(0.001)
        _forget_released()
    if used:
        time.sleep(_GRACE)
