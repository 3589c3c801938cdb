"""Says in one line which rank ended while all of them measured, in place of the text of the library
that the others talked through."""

import itertools
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist

from heterog.base.errors import RunFailed

PATIENCE = 3.0  # seconds that the other ranks have to say that they are alive
EVERY = 0.2  # seconds between looks
CTRL_C = "stopped by Ctrl-C"
# How gloo, NCCL and the store say that another process is gone.
_GONE = ("gloo/", "Connection closed by peer", "Connection reset", "NCCL", "Broken pipe")
_calls = itertools.count()


class RankLost(RunFailed):
    """Another rank ended while this one measured together with it."""


class Stopped(KeyboardInterrupt):
    """Ctrl-C, while ranks measured."""


@contextmanager
def lost_ranks_named(group) -> Iterator[None]:
    """What ends a rank inside is told to the others through the store, which outlives it."""
    global _look
    store = _store()
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    _look = _Look(store, rank, ranks)
    try:
        yield
    except (RankLost, Stopped) as error:  # of `look`
        raise _in_one_line(error) from None
    except KeyboardInterrupt:
        _tell(store, rank, CTRL_C)
        raise _in_one_line(Stopped(f"{CTRL_C} while steps were measured")) from None
    except Exception as error:
        if not _is_lost(error):
            _tell(store, rank, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
            raise
        _tell(store, rank, "")
        said = _others(store, rank, ranks)
        raise _in_one_line(_ended(said, error)) from None
    finally:
        _look = None


def look() -> None:
    """For loops that wait for the others without a word from them: raises if one has told its end."""
    if _look is not None:
        _look()


class _Look:
    """Asks the store now and then."""

    def __init__(self, store, rank: int, ranks: int):
        self._store, self._others = store, [other for other in range(ranks) if other != rank]
        self._next = 0.0

    def __call__(self) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + EVERY
        said = {}
        for other in self._others:
            try:
                if self._store.check([f"{other}"]):
                    said[other] = self._store.get(f"{other}").decode()
            except Exception:
                return  # gloo will say
        if any(said.values()):
            raise _ended(said)


_look: _Look | None = None


def _ended(said: dict[int, str | None], error: Exception | None = None) -> BaseException:
    if any(why == CTRL_C for why in said.values()):
        return Stopped(f"{CTRL_C} while steps were measured")
    return RankLost(_words(said, error))


def _words(said: dict[int, str | None], error: Exception | None) -> str:
    ended = [rank for rank, why in said.items() if why is None]
    failed = [f"rank {rank} stopped: {why}" for rank, why in said.items() if why]
    if failed:
        return "; ".join(failed) + " (while steps were measured)"
    if ended:
        which = " and ".join(f"rank {rank}" for rank in ended)
        return f"{which} ended while steps were measured, without a word; its own output may say why"
    return f"a link between ranks broke while steps were measured ({str(error).splitlines()[0][:200]})"


def _is_lost(error: Exception) -> bool:
    return isinstance(error, dist.DistError) or (
        isinstance(error, RuntimeError) and any(part in str(error) for part in _GONE)
    )


def _store():
    """Of this call: every rank makes as many."""
    prefix = f"heterog/measuring/{next(_calls)}"
    return dist.PrefixStore(prefix, dist.distributed_c10d._get_default_store())


def _tell(store, rank: int, what: str) -> None:
    try:
        store.set(f"{rank}", what)
    except Exception:
        pass  # the store went with the rank that held it


def _others(store, rank: int, ranks: int) -> dict[int, str | None]:
    """What each other rank said, "" if it was only left alone; None: nothing."""
    said: dict[int, str | None] = {other: None for other in range(ranks) if other != rank}
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and None in said.values():
        for other in [other for other, why in said.items() if why is None]:
            try:
                if store.check([f"{other}"]):
                    said[other] = store.get(f"{other}").decode()
            except Exception:
                return {0: None} if rank else said  # rank 0 held the store
        if any(said.values()):
            break  # that one is why
        time.sleep(0.05)
    return said


def _in_one_line(error: BaseException) -> BaseException:
    """Python ends with one line for it, if nobody catches it; of Ctrl-C rank 0 alone says one."""
    hook = sys.excepthook

    def one_line(kind, value, traceback):
        if value is not error:
            hook(kind, value, traceback)
        elif dist.get_rank() == 0 or not isinstance(error, KeyboardInterrupt):
            print(f"heterog: rank {dist.get_rank()}: {error}", file=sys.stderr, flush=True)

    sys.excepthook = one_line
    return error
