"""Watches how long ranks compute while they train, and moves samples where that has changed."""

import statistics
from collections.abc import Callable

import torch
import torch.distributed as dist

from heterog.uneven import step_times
from heterog.uneven.fair_shares import fair_shares, slowest
from heterog.uneven.loader import UnevenLoader

WARM_UP = 3  # steps of a window that do not count


class Balance:
    """Compares the ranks every `every` batches and re-balances where that would gain more than
    `bound` of the step.

    A rank's own time is that from its batch to the moment when the last bucket of its gradients is
    ready: what comes after waits for the others. All ranks see the same figures, those of rank 0's
    decision are sent to all, and they change at the same batch: the first that no worker process of
    any rank's loader can have been asked for.
    """

    def __init__(
        self,
        loader: UnevenLoader,
        least: int,
        *,
        bound: float,
        every: int,
        lead: int,
        say: Callable[[str], None],
    ):
        self._sampler = loader.sampler
        self._group = loader.weights._group
        self._device = loader.weights._device
        self._times = loader.found.times
        self._exposed = loader.found.exposed
        self._least = least
        self._bound = bound
        self._every = every
        self._lead = lead
        self._say = say
        self._seen = 0
        self._window: list = []  # functions that give seconds
        self._stop = None
        self._changing: list[int] | None = None  # the shares of which the window is
        self._weights = loader.weights

    def before(self, number: int) -> None:
        """Called on every rank before batch `number` is computed."""
        self._seen += 1
        shares = self._sampler.shares_of(number)
        if shares != self._changing:
            self._changing, self._window = shares, []
        if len(self._window) >= self._every:
            self._compare(number, shares)
            self._window = []
            shares = self._sampler.shares_of(number)
        whole = sum(self._sampler.sizes(number)) == self._sampler.batch
        self._stop = _timer(self._device) if whole else None
        self._weights.on_reduced = self._reduced

    def _reduced(self) -> None:
        if self._stop is not None:
            self._window.append(self._stop())
            self._stop = None

    def _compare(self, number: int, shares: list[int]) -> None:
        own = statistics.median(seconds() for seconds in self._window[WARM_UP:])
        ranks = dist.get_world_size(self._group)
        all_own = torch.zeros(ranks, dtype=torch.float64, device=self._device)
        all_own[dist.get_rank(self._group)] = own
        dist.all_reduce(all_own, group=self._group)
        decided = [self._decide(all_own.tolist(), shares)]
        dist.broadcast_object_list(decided, dist.get_global_rank(self._group, 0), self._group)
        better, gain = decided[0]
        if better is None:
            return
        first = number + self._lead
        if self._sampler.whole_epochs:
            first = max(first, self._sampler.global_batches)
        self._sampler.change_shares(better, first)
        if dist.get_rank(self._group) == 0:
            beyond = first >= self._sampler.global_batches
            when = "the next epoch on" if beyond else f"batch {first} of this epoch"
            self._say(
                f"heterog: from {when}, {better} samples a rank in place of "
                f"{shares}: {gain:.2f} × as fast by the last {self._every} steps"
            )

    def _decide(self, own: list[float], shares: list[int]) -> tuple[list[int] | None, float]:
        if min(own) <= 0:  # a clock that stands still
            return None, 1.0
        now = [
            time.slowed(seconds / time.of(share))
            for time, seconds, share in zip(self._times, own, shares, strict=True)
        ]
        better = fair_shares(now, sum(shares), self._least)
        gain = (slowest(now, shares) + self._exposed) / (slowest(now, better) + self._exposed)
        return (better, gain) if gain > 1 + self._bound else (None, gain)


def _timer(device: torch.device) -> Callable:
    """Starts; a call stops it and returns a function that gives the seconds, when asked."""
    if device.type != "cuda":
        start = step_times.clock()

        def stop():
            seconds = step_times.clock() - start
            return lambda: seconds

        return stop
    begin = torch.cuda.Event(enable_timing=True)
    begin.record()

    def stop_on_stream():
        end = torch.cuda.Event(enable_timing=True)
        end.record()

        def seconds():
            end.synchronize()
            return begin.elapsed_time(end) / 1000

        return seconds

    return stop_on_stream
