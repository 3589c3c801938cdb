"""Shares that were planned before anything ran, in place of measured ones: the file of `heterog shares`
and of `heterog hand-over --to ddp` or `fsdp2` (docs/formats.md)."""

import os
from collections.abc import Sequence

from heterog.base.errors import InputError
from heterog.base.given import FilePath
from heterog.base.reading import read_json
from heterog.base.values import as_int
from heterog.uneven.deals import in_words
from heterog.uneven.fair_shares import StepTime
from heterog.uneven.loader import LikeSampler
from heterog.uneven.sampler import read_shares

MOST_MICRO_BATCHES = 1 << 20


def read_planned(path: FilePath | None, sampler: LikeSampler, limits: Sequence[int]) -> list[int] | None:
    """Samples of each rank in a step of the training that the sampler is of; None where the file has
    no plan (what auto_shares keeps) or is not there. `limits`: samples of a pass of each rank at most.
    Raises InputError where it is of another training."""
    if path is None or not os.path.lexists(path):
        return None
    name = f"{os.fspath(path)}"
    fields = read_json(path)
    if not isinstance(fields, dict) or fields.get("format") != "heterog-shares":
        return None
    of_pass = read_shares(path)
    parts = as_int(fields.get("micro_batches", 1), f"{name}: micro_batches", 1, MOST_MICRO_BATCHES)
    if len(of_pass) != sampler.ranks:
        raise InputError(
            f"{name}: samples_per_rank: planned for {len(of_pass)} ranks, this training has {sampler.ranks}: "
            "start a process for each device that has samples, in the order of the file"
        )
    if parts != sampler.parts:
        raise InputError(
            f"{name}: micro_batches: planned for {parts}, this training accumulates {sampler.parts}: give "
            f"accumulate={parts}, and accumulate as many"
        )
    if sum(of_pass) * parts != sampler.batch:
        raise InputError(
            f"{name}: samples_per_rank: planned for {sum(of_pass) * parts} samples a step, this training has "
            f"{sampler.batch}: give batch={sum(of_pass) * parts}, or plan with --batch {sampler.batch}"
        )
    for rank, (samples, limit) in enumerate(zip(of_pass, limits, strict=True)):
        if not sampler.least <= samples <= limit:
            raise InputError(
                f"{name}: samples_per_rank[{rank}]: planned with {samples} samples a pass, this rank takes "
                f"{sampler.least} to {limit} (batch normalisation and most= say so)"
            )
    return [samples * parts for samples in of_pass]


def take_planned(sampler: LikeSampler, shares: list[int], path: FilePath, first: int) -> str:
    """Deals them out from batch number `first` on; what to say of it."""
    micro = [None if sampler.even_micro is None or sampler.together else n // sampler.parts for n in shares]
    passes = sampler.parts if sampler.together and sampler.parts > 1 else None
    sampler.change_shares(shares, first)
    sampler.change_micro(micro[sampler.rank], first)
    taken = "; ".join(
        f"rank {rank}: {in_words(share, StepTime(0.0, 1.0, None, micro[rank], passes))}"
        for rank, share in enumerate(shares)
    )
    return f"heterog: of {sum(shares)} samples a step, {taken}, as planned in {os.fspath(path)}"
