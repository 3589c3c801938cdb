"""What `auto_shares` found, and how it says it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

import torch

from heterog.uneven.deals import in_words
from heterog.uneven.fair_shares import StepTime, fair_shares, slowest

WORTH = 1.02  # a rank is only to be left out if steps are that much faster without it


@dataclass(frozen=True)
class LeftOut:
    """What would change without some ranks; seconds of a step."""

    gain: float  # how many times as fast; 0 where the rest has no memory for the batch
    computing: float = 0.0  # of the slowest rank
    computing_without: float = 0.0
    all_reduce_without: float = 0.0
    link: bool = False  # most is gained by what is no longer waited for, and not by computing


@dataclass(frozen=True)
class Found:
    """What `auto_shares` measured and decided; seconds of steps are medians."""

    samples_per_rank: list[int]
    even: list[int]  # the shares of an even script
    devices: list[str]
    times: list[StepTime]  # of each rank, apart from the others
    even_seconds: float  # a whole step at even shares, measured
    seconds: float  # at the shares that were found, measured
    predicted_seconds: float  # the same, before it was measured
    all_reduce_bytes: int
    all_reduce_seconds: float
    even_micro: int | None = None  # samples of a micro-batch of the even script; None: no accumulation
    together: bool = False  # ranks meet in every pass: times of a pass have the meeting in them
    spread: tuple[float, float] | None = None  # seconds; where measured and predicted do not agree
    leave_out: dict[tuple[int, ...], LeftOut] = field(default_factory=dict)

    @property
    def exposed(self) -> float:
        """Seconds of a step at even shares in which no rank computes."""
        return exposed(self.even_seconds, self.even_times, self.even)

    @property
    def even_times(self) -> list[StepTime]:
        """Of each rank, in micro-batches of the even script."""
        return in_micro_batches(self.times, self.even_micro)

    @property
    def speed_up(self) -> float:
        return self.even_seconds / self.seconds

    @property
    def predicted_speed_up(self) -> float:
        return self.even_seconds / self.predicted_seconds

    def kept_even(self) -> "Found":
        """What is left where other shares turn out to be no faster."""
        return replace(
            self,
            samples_per_rank=self.even,
            times=self.even_times,
            seconds=self.even_seconds,
            predicted_seconds=self.even_seconds,
            spread=None,
        )

    def lines(self) -> list[str]:
        batch = sum(self.samples_per_rank)
        shares = [
            in_words(share, time)
            for share, time in zip(self.samples_per_rank, self.times, strict=True)
        ]
        taken = list(zip(self.devices, shares, strict=True))
        parts = []
        for (device, share), ranks in groupby(range(len(taken)), key=taken.__getitem__):
            parts.append(f"{_ranks(list(ranks))} ({device}): {share}")
        lines = [
            f"heterog: of {batch} samples a step, {'; '.join(parts)}",
            f"heterog: {1e3 * self.seconds:.1f} ms a step, {self.speed_up:.2f} × even shares "
            f"({1e3 * self.even_seconds:.1f} ms), predicted {self.predicted_speed_up:.2f}"
            + ("" if self.together else f"; {self._all_reduce()}"),
        ]
        if self.spread:
            low, high = (f"{1e3 * seconds:.1f}" for seconds in self.spread)
            lines.append(
                f"heterog: these figures are rough: half of the steps took {low} to {high} ms, and not "
                f"the {1e3 * self.predicted_seconds:.1f} ms predicted"
            )
        for ranks, without in self.leave_out.items():
            lines.append(f"heterog: leave {_ranks(list(ranks))} out: {self._why(ranks, without)}")
        return lines

    def _all_reduce(self) -> str:
        megabytes, milliseconds = self.all_reduce_bytes / 1e6, 1e3 * self.all_reduce_seconds
        return f"an all-reduce of {megabytes:.1f} MB takes {milliseconds:.1f} ms"

    def _why(self, ranks: tuple[int, ...], without: LeftOut) -> str:
        one = len(ranks) == 1
        if without.link:
            costs = "its link costs more than it gives"
            costs = costs if one else "their link costs more than they give"
            why = (
                f"{costs}: an all-reduce takes {1e3 * self.all_reduce_seconds:.1f} ms with "
                f"{'it' if one else 'them'}, {1e3 * without.all_reduce_without:.1f} ms without"
            )
        else:
            why = (
                f"{'it is' if one else 'they are'} too slow to help: the step computes for "
                f"{1e3 * without.computing:.1f} ms with {'it' if one else 'them'}, for "
                f"{1e3 * without.computing_without:.1f} ms if the others take all samples"
            )
        return f"{why} (predicted {without.gain:.2f} × as fast without)"


def in_micro_batches(times: Sequence[StepTime], micro: int | None) -> list[StepTime]:
    return [replace(time, micro=micro) for time in times]


def exposed(step: float, times: Sequence[StepTime], shares: Sequence[int]) -> float:
    return max(0.0, step - slowest(times, shares))


def within(a: float, b: float, bound: float) -> bool:
    """Whether neither is more than `bound` times the other."""
    return a <= bound * b and b <= bound * a


def left_out(found: Found, all_reduce: float, ranks: Sequence[int]) -> LeftOut:
    """A step without these ranks, if an all-reduce of the rest takes `all_reduce` seconds: as much
    of it is hidden behind computation as before."""
    rest = [time for rank, time in enumerate(found.times) if rank not in ranks]
    batch = sum(found.samples_per_rank)
    if sum(batch if time.most is None else time.most for time in rest) < batch:
        return LeftOut(0.0)
    saved = max(0.0, found.all_reduce_seconds - all_reduce)
    waited = min(found.exposed, saved)
    computing = slowest(found.times, found.samples_per_rank)
    without = slowest(rest, fair_shares(rest, batch))
    return LeftOut(
        gain=found.predicted_seconds / (without + found.exposed - waited),
        computing=computing,
        computing_without=without,
        all_reduce_without=all_reduce,
        link=waited > computing - without,
    )


def candidates(hosts: Sequence[str]) -> list[tuple[int, ...]]:
    """Ranks that may be better left out: each one, and all of a machine, whose link they share."""
    ranks = [(rank,) for rank in range(len(hosts))]
    machines = [
        tuple(rank for rank, other in enumerate(hosts) if other == host)
        for host in dict.fromkeys(hosts)
    ]
    return ranks + [ranks_of for ranks_of in machines if 1 < len(ranks_of) < len(hosts)]


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return device.type


def _ranks(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if ranks == list(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]} to {ranks[-1]}"
    return f"ranks {', '.join(map(str, ranks))}"
