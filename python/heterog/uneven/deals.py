"""What each rank takes of a global batch: how many samples, in one batch or in micro-batches whose
gradients it accumulates."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from heterog.uneven.fair_shares import StepTime, in_passes

WORTH = 1.02  # larger micro-batches are only taken if a sample is that much faster in them


@dataclass(frozen=True)
class Deal:
    """By rank: samples, and samples of a micro-batch at most (None: one batch of all). `passes`: all
    ranks have as many micro-batches."""

    shares: tuple[int, ...]
    micro: tuple[int | None, ...]
    passes: int | None = None

    @staticmethod
    def of_shares(shares: Sequence[int], times: Sequence[StepTime]) -> "Deal":
        return Deal(tuple(shares), tuple(time.micro for time in times), times[0].passes)

    def of(self, rank: int, least: int) -> list[int]:
        """Sizes of the batches of one rank, also of those in which it has a stand-in."""
        if self.passes is not None:
            return [max(size, least) for size in in_passes(self.shares[rank], self.passes)]
        micro = self.micro[rank]
        return [self.shares[rank]] if micro is None else cut(self.shares[rank], micro, least)

    def times(self, times: Sequence[StepTime]) -> list[StepTime]:
        """Those of the ranks, in micro-batches of these sizes."""
        return [replace(time, micro=micro) for time, micro in zip(times, self.micro, strict=True)]


def cut(samples: int, micro: int, least: int = 1) -> list[int]:
    """Sizes of the fewest micro-batches of `micro` samples at most, as equal as can be. One more
    sample is in some where the last would have fewer than `least`."""
    count = max(1, min(-(-samples // micro), samples // least))
    return [samples // count + (place < samples % count) for place in range(count)]


def in_words(share: int, time: StepTime) -> str:
    """`12 in 4 micro-batches of 3`"""
    if time.micro is None and time.passes is None:
        return f"{share}"
    sizes = cut(share, time.micro) if time.passes is None else in_passes(share, time.passes)
    size = f"{sizes[-1]}" if sizes[0] == sizes[-1] else f"{sizes[-1]} to {sizes[0]}"
    return f"{share} in {len(sizes)} micro-batch{'es' if len(sizes) > 1 else ''} of {size}"


def best_micro(seconds: dict[int, float], even: int) -> int:
    """The size of micro-batches at which a sample takes least, of those that were measured and fit:
    not below that of the even script, if it fits."""
    base = max((size for size in seconds if size <= even), default=min(seconds))
    best = min((size for size in seconds if size >= base), key=lambda size: seconds[size] / size)
    gain = seconds[base] / base / (seconds[best] / best)
    return best if gain > WORTH else base
