"""The whole numbers of samples by which ranks of unequal speed are done soonest."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch


@dataclass(frozen=True)
class StepTime:
    """Seconds that a rank computes in a step, by its samples. `fixed` is that of one pass: of the
    whole step, or of each micro-batch of at most `micro` samples, whose gradients are accumulated, or
    of each of `passes` micro-batches, of one sample at least. `most` samples of a step fit."""

    fixed: float
    per_sample: float
    most: int | None = None
    micro: int | None = None
    passes: int | None = None

    def of(self, samples: int) -> float:
        if self.passes is not None:
            return self.fixed * self.passes + self.per_sample * max(samples, self.passes)
        passes = 1 if self.micro is None else max(1, -(-samples // self.micro))
        return self.fixed * passes + self.per_sample * samples

    def slowed(self, factor: float) -> "StepTime":
        return replace(self, fixed=self.fixed * factor, per_sample=self.per_sample * factor)


def fit_line(points: dict[int, float]) -> tuple[float, float]:
    """The fixed part and the part per sample, neither negative, of figures by numbers of samples:
    least squares of relative errors."""
    if len(points) == 1:
        ((samples, value),) = points.items()
        return 0.0, value / samples
    samples = torch.tensor(list(points), dtype=torch.float64)
    values = torch.tensor(list(points.values()), dtype=torch.float64)
    weights = 1 / values
    terms = torch.stack([weights, samples * weights], 1)
    fixed, slope = torch.linalg.lstsq(terms, torch.ones_like(values)).solution.tolist()
    if fixed >= 0 and slope > 0:
        return fixed, slope
    # Noise, or costs that bend: the best line through nothing at no samples.
    ratio = samples * weights
    return 0.0, (ratio.sum() / (ratio * ratio).sum()).item()


def fair_shares(times: Sequence[StepTime], batch: int, least: int = 1) -> list[int]:
    """Samples of each rank, at least `least`, that make the slowest rank's time least; `batch` in
    all.

    Sample after sample goes to the rank that would be done first with one more. That is exact,
    since times grow with samples: while some rank has fewer samples than in a best split, the time
    of what it gets next is no more than the best split's. Ties go to the earlier rank.
    """
    limits = [batch if time.most is None else time.most for time in times]
    if batch < least * len(times):
        raise ValueError(f"batch: {batch} samples for {len(times)} ranks; each needs {least} or more")
    for rank, limit in enumerate(limits):
        if limit < least:
            raise ValueError(f"rank {rank}: fewer than {least} samples fit in its memory")
    if sum(limits) < batch:
        raise ValueError(
            f"batch: {batch} samples, but the ranks have memory for {sum(limits)} in all "
            f"({', '.join(map(str, limits))})"
        )
    shares = [least] * len(times)
    waiting = [
        (time.of(least + 1), rank) for rank, time in enumerate(times) if limits[rank] > least
    ]
    heapq.heapify(waiting)
    for _ in range(batch - sum(shares)):
        _, rank = waiting[0]
        shares[rank] += 1
        if shares[rank] < limits[rank]:
            heapq.heapreplace(waiting, (times[rank].of(shares[rank] + 1), rank))
        else:
            heapq.heappop(waiting)
    return shares


def in_passes(samples: int, passes: int) -> list[int]:
    """Sizes of so many micro-batches, as equal as can be; 0: the rank has none of that one."""
    return [samples // passes + (place < samples % passes) for place in range(passes)]


def slowest(times: Sequence[StepTime], shares: Sequence[int]) -> float:
    """Seconds until all ranks are done; with `passes`, until they are in each of them."""
    if times[0].passes is not None:
        sizes = [in_passes(share, times[0].passes) for share in shares]
        each = [replace(time, passes=None) for time in times]
        return sum(slowest(each, [max(1, size) for size in place]) for place in zip(*sizes, strict=True))
    return max(time.of(share) for time, share in zip(times, shares, strict=True))
