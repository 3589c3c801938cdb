"""What `auto_shares` found, and how it says it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

import torch

from heterog.fair_shares import StepTime, fair_shares, slowest

WORTH = 1.02  # a rank is only to be left out if steps are that much faster without it


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
    leave_out: dict[tuple[int, ...], float] = field(default_factory=dict)  # how much faster without

    @property
    def exposed(self) -> float:
        """Seconds of a step at even shares in which no rank computes."""
        return exposed(self.even_seconds, self.times, self.even)

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
            seconds=self.even_seconds,
            predicted_seconds=self.even_seconds,
        )

    def lines(self) -> list[str]:
        batch = sum(self.samples_per_rank)
        taken = list(zip(self.devices, self.samples_per_rank, strict=True))
        parts = []
        for (device, share), ranks in groupby(range(len(taken)), key=taken.__getitem__):
            parts.append(f"{_ranks(list(ranks))} ({device}): {share}")
        lines = [
            f"heterog: of {batch} samples a step, {'; '.join(parts)}",
            f"heterog: {1e3 * self.seconds:.1f} ms a step, {self.speed_up:.2f} × even shares "
            f"({1e3 * self.even_seconds:.1f} ms), predicted {self.predicted_speed_up:.2f}; "
            f"an all-reduce of {self.all_reduce_bytes / 1e6:.1f} MB takes "
            f"{1e3 * self.all_reduce_seconds:.1f} ms",
        ]
        for ranks, gain in self.leave_out.items():
            costs, give = ("its link costs", "it gives") if len(ranks) == 1 else (
                "their link costs", "they give")
            lines.append(
                f"heterog: leave {_ranks(list(ranks))} out: {costs} more than {give} (predicted "
                f"{gain:.2f} × as fast without)"
            )
        return lines


def exposed(step: float, times: Sequence[StepTime], shares: Sequence[int]) -> float:
    return max(0.0, step - slowest(times, shares))


def left_out_gain(found: Found, saved: float, ranks: Sequence[int]) -> float:
    """How many times as fast a step is without these ranks, if the all-reduce of the rest takes
    `saved` seconds less: as much of it is hidden behind computation as before. 0 where the rest has
    no memory for the batch."""
    rest = [time for rank, time in enumerate(found.times) if rank not in ranks]
    batch = sum(found.samples_per_rank)
    if sum(batch if time.most is None else time.most for time in rest) < batch:
        return 0.0
    without = slowest(rest, fair_shares(rest, batch)) + max(0.0, found.exposed - max(saved, 0.0))
    return found.predicted_seconds / without


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
