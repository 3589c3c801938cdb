"""What steps of DistributedDataParallel took, from the files of `heterog.time_ddp` (which may be written by
hand) and of `heterog.auto_shares`: docs/formats.md has their fields."""

from dataclasses import dataclass
from pathlib import Path

from heterog.base.errors import InputError
from heterog.base.reading import read_json
from heterog.base.values import (
    as_bool,
    as_int,
    as_list,
    as_number,
    as_object,
    as_string,
    check_format,
    required,
    shown,
)
from heterog.uneven import ddp_timings, kept_shares

_MOST_SAMPLES = (1 << 31) - 1
_MOST_BYTES = 1 << 50
_MOST_SECONDS = 1e4  # of an operator, which planning takes


@dataclass(frozen=True)
class RankTimes:
    device: str  # a type, or what its driver or its system calls it
    seconds: dict[int, float]  # of a pass of so many samples, apart from the other ranks


@dataclass(frozen=True)
class Step:
    """A whole step, with its all-reduce."""

    samples: tuple[int, ...]  # of each rank
    seconds: float


@dataclass(frozen=True)
class Timings:
    source: str
    gradient_bytes: int
    all_reduce_seconds: float  # of all of them; 0: not measured
    update: bool  # passes and steps have the optimizer's update in them
    ranks: tuple[RankTimes, ...]
    steps: tuple[Step, ...]

    @property
    def samples(self) -> tuple[int, ...]:
        """Of a step of the script."""
        return self.steps[0].samples if self.steps else tuple(next(iter(rank.seconds)) for rank in self.ranks)


def read_timings(path) -> Timings:
    name = f"{Path(path)}"
    fields = as_object(read_json(path), name)
    found = required(fields, "format", name)
    if found == kept_shares.FORMAT:
        return _of_shares(fields, name)
    if found != ddp_timings.FORMAT:
        raise InputError(
            f"{name}: format: expected {shown(ddp_timings.FORMAT)} or {shown(kept_shares.FORMAT)}, found {shown(found)}"
        )
    check_format(fields, name, ddp_timings.FORMAT, ddp_timings.VERSION)
    ranks = tuple(_rank(value, where) for value, where in _each(fields, "ranks", name))
    timings = _timings(fields, name, ranks, ())
    if fields.get("step_seconds") is None:
        return timings
    step = Step(timings.samples, _seconds(fields, "step_seconds", name))
    return _timings(fields, name, ranks, (step,))


def _timings(fields: dict, name: str, ranks: tuple[RankTimes, ...], steps: tuple[Step, ...]) -> Timings:
    where = f"{name}: all_reduce_seconds"
    return Timings(
        name,
        as_int(required(fields, "gradient_bytes", name), f"{name}: gradient_bytes", 1, _MOST_BYTES),
        as_number(required(fields, "all_reduce_seconds", name), where, 0.0, _MOST_SECONDS),
        as_bool(fields.get("update", False), f"{name}: update"),
        ranks,
        steps,
    )


def _rank(value, where: str) -> RankTimes:
    rank = as_object(value, where)
    device = as_string(required(rank, "device", where), f"{where}.device")
    seconds: dict[int, float] = {}
    for one, place in _each(rank, "passes", where):
        timed = as_object(one, place)
        samples = as_int(required(timed, "samples", place), f"{place}.samples", 1, _MOST_SAMPLES)
        if samples in seconds:
            raise InputError(f"{place}.samples: {samples} were timed already; give each size once")
        seconds[samples] = _seconds(timed, "seconds", place)
    return RankTimes(device, seconds)


def _of_shares(fields: dict, name: str) -> Timings:
    """Of what auto_shares kept: its lines through the passes, at the sizes that it ended with."""
    check_format(fields, name, kept_shares.FORMAT, kept_shares.VERSION)
    if as_bool(required(fields, "together", name), f"{name}: together"):
        raise InputError(
            f"{name}: together: measured of a sharded model, whose ranks meet in every pass; give timings of "
            "DistributedDataParallel"
        )
    accumulate = as_int(required(fields, "accumulate", name), f"{name}: accumulate", 1, _MOST_SAMPLES)
    ranks, shares, even = [], [], []
    for value, where in _each(fields, "ranks", name):
        rank = as_object(value, where)
        counts = {
            key: as_int(required(rank, key, where), f"{where}.{key}", 1, _MOST_SAMPLES)
            for key in ("samples", "even_samples")
        }
        fixed, each = (
            as_number(required(rank, key, where), f"{where}.{key}", 0.0, _MOST_SECONDS)
            for key in ("pass_seconds", "sample_seconds")
        )
        if fixed + each == 0:
            raise InputError(f"{where}.sample_seconds: expected more than 0 seconds, found 0")
        sizes = [counts["even_samples"], counts["samples"]]
        if accumulate > 1:
            sizes = [as_int(required(rank, "micro", where), f"{where}.micro", 1, _MOST_SAMPLES)]
        device = as_string(required(rank, "device", where), f"{where}.device")
        ranks.append(RankTimes(device, {size: fixed + each * size for size in sizes}))
        even.append(counts["even_samples"])
        shares.append(counts["samples"])
    steps = [(even, "even_seconds"), (shares, "step_seconds")]
    if accumulate > 1:
        steps = []  # of several passes each
    elif even == shares:
        steps = steps[:1]
    whole = tuple(Step(tuple(samples), _seconds(fields, key, name)) for samples, key in steps)
    return _timings(fields, name, tuple(ranks), whole)


def _each(fields: dict, key: str, where: str) -> list[tuple]:
    """The values of a list that holds some, each with its place."""
    place = f"{where}.{key}" if "[" in where else f"{where}: {key}"
    values = as_list(required(fields, key, where), place)
    if not values:
        raise InputError(f"{place}: expected at least one, found an empty list")
    return [(value, f"{place}[{i}]") for i, value in enumerate(values)]


def _seconds(fields: dict, key: str, where: str) -> float:
    place = f"{where}.{key}" if "[" in where else f"{where}: {key}"
    seconds = as_number(required(fields, key, where), place, 0.0, _MOST_SECONDS)
    if seconds == 0:
        raise InputError(f"{place}: expected more than 0 seconds, found 0")
    return seconds
