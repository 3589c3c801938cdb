"""What `auto_shares` measured, kept in a file and used again: docs/formats.md has its fields."""

import json
import os
from dataclasses import dataclass

from heterog.base.errors import InputError
from heterog.base.files import replace_file
from heterog.base.given import FilePath
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
from heterog.uneven.fair_shares import StepTime
from heterog.uneven.shares_found import Found

FORMAT, VERSION = "heterog-measured-shares", 1
MOST = 1 << 31


@dataclass(frozen=True)
class Training:
    """What figures were measured of; they hold for no other."""

    batch: int  # samples of a global batch
    accumulate: int  # micro-batches of a rank of the even script
    gradient_bytes: int
    devices: tuple[str, ...]  # by rank
    least: int  # samples of a rank
    together: bool = False  # ranks meet in every pass


def write_kept(path: FilePath, found: Found, training: Training, update: bool = False) -> None:
    """`update`: whether the steps had the optimizer's in them. Raises RunFailed where the system refuses it."""
    ranks = [
        {
            "device": device, "samples": samples, "even_samples": even, "micro": time.micro,
            "pass_seconds": time.fixed, "sample_seconds": time.per_sample, "most": time.most,
        }
        for device, samples, even, time in zip(
            found.devices, found.samples_per_rank, found.even, found.times, strict=True
        )
    ]  # fmt: skip
    fields = {
        "format": FORMAT, "version": VERSION,
        "batch": training.batch, "accumulate": training.accumulate, "together": training.together,
        "gradient_bytes": training.gradient_bytes, "update": update,
        "even_seconds": found.even_seconds, "step_seconds": found.seconds,
        "predicted_seconds": found.predicted_seconds,
        "all_reduce_seconds": found.all_reduce_seconds, "ranks": ranks,
    }  # fmt: skip
    replace_file(path, (json.dumps(fields, indent=1) + "\n").encode())


def read_kept(path: FilePath, training: Training) -> Found | None:
    """None where there is no such file. Raises InputError where it is of another training."""
    if not os.path.lexists(path):
        return None
    name = f"{os.fspath(path)}"
    fields = as_object(read_json(path), name)
    check_format(fields, name, FORMAT, VERSION)
    for key in ("batch", "accumulate", "gradient_bytes"):
        value = as_int(required(fields, key, name), f"{name}: {key}", 0, 1 << 62)
        _same(f"{name}: {key}", value, getattr(training, key))
    together = as_bool(required(fields, "together", name), f"{name}: together")
    _same(f"{name}: together", together, training.together)
    ranks = as_list(required(fields, "ranks", name), f"{name}: ranks")
    _same(f"{name}: ranks", len(ranks), len(training.devices))
    taken = [
        _rank(each, f"{name}: ranks[{rank}]", training, rank) for rank, each in enumerate(ranks)
    ]
    for place, key in ((0, "samples"), (1, "even_samples")):
        total = sum(each[place] for each in taken)
        if total != training.batch:
            raise InputError(
                f"{name}: the {key} of all ranks are {total}, expected {training.batch}, the batch"
            )
    seconds = {
        key: as_number(required(fields, key, name), f"{name}: {key}", 0.0)
        for key in ("even_seconds", "step_seconds", "predicted_seconds", "all_reduce_seconds")
    }
    for key in ("even_seconds", "step_seconds", "predicted_seconds"):
        if seconds[key] == 0:
            raise InputError(f"{name}: {key}: expected more than 0 seconds, found 0")
    even_micro = None
    if training.accumulate > 1 and not together:
        even_micro = -(-max(even for _, even, _ in taken) // training.accumulate)
    return Found(
        samples_per_rank=[samples for samples, _, _ in taken],
        even=[even for _, even, _ in taken],
        devices=list(training.devices),
        times=[time for _, _, time in taken],
        even_seconds=seconds["even_seconds"],
        seconds=seconds["step_seconds"],
        predicted_seconds=seconds["predicted_seconds"],
        all_reduce_bytes=training.gradient_bytes,
        all_reduce_seconds=seconds["all_reduce_seconds"],
        even_micro=even_micro,
        together=together,
    )


def _rank(value, where: str, training: Training, rank: int) -> tuple[int, int, StepTime]:
    """Samples, those of an even script, and times of one rank."""
    fields = as_object(value, where)
    device = as_string(required(fields, "device", where), f"{where}.device")
    _same(f"{where}.device", device, training.devices[rank])
    samples, even = (
        as_int(required(fields, key, where), f"{where}.{key}", training.least, MOST)
        for key in ("samples", "even_samples")
    )
    micro, most = (
        None if (found := required(fields, key, where)) is None else as_int(found, f"{where}.{key}", 1, MOST)
        for key in ("micro", "most")
    )
    if (micro is None) != (training.accumulate == 1 or training.together):
        null = "null, of a sharded model" if training.together else "null, of no accumulation"
        wanted = null if micro is not None else "samples of a micro-batch"
        raise InputError(f"{where}.micro: expected {wanted}, found {micro or 'null'}")
    if most is not None and most < samples:
        raise InputError(f"{where}.most: expected at least {samples}, the samples, found {most}")
    fixed = as_number(required(fields, "pass_seconds", where), f"{where}.pass_seconds", 0.0)
    per_sample = as_number(required(fields, "sample_seconds", where), f"{where}.sample_seconds", 0.0)
    if per_sample == 0:
        raise InputError(f"{where}.sample_seconds: expected more than 0 seconds, found 0")
    passes = training.accumulate if training.together and training.accumulate > 1 else None
    return samples, even, StepTime(fixed, per_sample, most, micro, passes)


def _same(where: str, found, wanted) -> None:
    if found != wanted:
        raise InputError(
            f"{where}: measured with {shown(found)}, this training has {shown(wanted)}: name another file, or "
            "delete this one to measure anew"
        )
