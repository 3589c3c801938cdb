"""What the steps of a plain DistributedDataParallel script take on every rank, in a file that planning
reads (`heterog import-timings`, docs/timings.md)."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace

import torch.distributed as dist
from torch import nn

from heterog.base.data_parallel import any_sharded, group_of
from heterog.base.files import replace_file
from heterog.base.given import FilePath
from heterog.base.untouched import untouched
from heterog.uneven.between_ranks import from_all, from_first
from heterog.uneven.lost_rank import lost_ranks_named
from heterog.uneven.share_checks import models_of
from heterog.uneven.shares_found import device_name
from heterog.uneven.step_times import all_reduce_seconds, measure, typical
from heterog.uneven.trial_steps import Trial, gradient_bytes, unlogged

FORMAT, VERSION = "heterog-ddp-timings", 1


def time_ddp(
    model,
    step_fn: Callable,
    batches: Mapping[int, object],
    out: FilePath,
    *,
    rounds: int = 7,
    also: Sequence = (),
    say: Callable[[str], None] | None = print,
) -> None:
    """Times the script's own steps and writes `out`, for `heterog import-timings`. Call it on every
    rank, before the loop; what the timed steps change is put back.

    model     the DistributedDataParallel model, or a list of those that the step trains
    step_fn   called with a batch: computes the loss and returns it, or does the whole step, with
              backward pass and update, which is then in the figures
    batches   this rank's batches to time, by their numbers of samples: {48: batch}. The first is that
              of the script; a second one of another size shows what does not depend on the size
    out       the file, which rank 0 writes
    rounds    how often each is timed; the lower quartile counts
    also      what else step_fn changes: objects with state_dict, as a GradScaler
    say       what to do with the line of what was found, on rank 0; None: nothing
    """
    wrapped = models_of(model)
    models = wrapped[0] if len(wrapped) == 1 else nn.ModuleList(wrapped)
    if any_sharded(models):
        raise ValueError("model: fully_shard has its ranks meet in every pass, so that none can be timed by itself")
    sizes = _sizes(batches)
    group = group_of(wrapped[0])
    trial = Trial(models, [], step_fn, _Given(batches))
    trial.load(sizes)
    step = partial(trial.step, sizes[:1])
    with lost_ranks_named(group), untouched(models, also), unlogged(models):
        # DistributedDataParallel lays out its buckets in the first steps (of a static graph, one later).
        measure(trial, models, [], [step], 3)
        seconds, whole = measure(trial, models, sizes, [step], rounds)
        nbytes, ranks = gradient_bytes(models), dist.get_world_size(group)
        reducing = all_reduce_seconds(nbytes, rounds, trial.device, group) if ranks > 1 else 0.0
    own = {"device": device_name(trial.device), "passes": _passes(seconds)}
    taken = from_all((own, reducing), group)
    fields = {
        "format": FORMAT, "version": VERSION, "gradient_bytes": nbytes,
        "all_reduce_seconds": max(seconds for _, seconds in taken),
        "update": trial.updates, "step_seconds": typical(whole[0]),
        "ranks": [rank for rank, _ in taken],
    }  # fmt: skip
    text = json.dumps(fields, indent=1) + "\n"
    from_first(lambda: replace_file(out, text.encode()), group)
    if say is not None and dist.get_rank(group) == 0:
        say(_line(fields, out))


def _sizes(batches: Mapping[int, object]) -> list[int]:
    if not isinstance(batches, Mapping) or not batches:
        raise ValueError("batches: expected batches by their numbers of samples, as {48: batch}")
    for size in batches:
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"batches: {size!r}; expected a number of samples, 1 or more")
    return list(batches)


class _Given:
    """In place of a loader: batches that the script has."""

    def __init__(self, batches: Mapping[int, object]):
        self._batches = batches
        self.sampler = SimpleNamespace(length=max(batches), parts=1)

    def batches_of(self, chosen: Sequence[Sequence[int]]) -> list:
        return [self._batches[len(one)] for one in chosen]


def _passes(seconds: dict[int, float]) -> list[dict]:
    return [{"samples": samples, "seconds": took} for samples, took in seconds.items()]


def _line(fields: dict, out: FilePath) -> str:
    ranks = []
    for rank, one in enumerate(fields["ranks"]):
        passes = (f"{1e3 * each['seconds']:.1f} ms for {each['samples']} samples" for each in one["passes"])
        ranks.append(f"rank {rank} ({one['device']}) {', '.join(passes)}")
    megabytes, reducing = fields["gradient_bytes"] / 1e6, 1e3 * fields["all_reduce_seconds"]
    return (
        f"heterog: {os.fspath(out)}: {'; '.join(ranks)}; a step {1e3 * fields['step_seconds']:.1f} ms; "
        f"an all-reduce of {megabytes:.1f} MB {reducing:.1f} ms"
    )
