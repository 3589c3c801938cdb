"""How many samples each rank of a plain DistributedDataParallel or fully_shard script should take,
found by measuring its own steps: no graph, no cluster file."""

import dataclasses
import math
import os
import socket
from collections.abc import Callable, Sequence
from functools import partial

import torch.distributed as dist
from torch import nn

from heterog.base.data_parallel import any_sharded, group_of, wrapped_models
from heterog.base.given import FilePath
from heterog.base.untouched import untouched
from heterog.uneven import step_times
from heterog.uneven.accumulated import counted_by_lightning
from heterog.uneven.balance import Balance
from heterog.uneven.between_ranks import from_all, from_first
from heterog.uneven.deals import Deal, best_micro
from heterog.uneven.drawn_batches import DrawnBatches
from heterog.uneven.fair_shares import StepTime, fair_shares, fit_line, slowest
from heterog.uneven.gradient_weights import weighted_gradients
from heterog.uneven.kept_shares import Training, read_kept, write_kept
from heterog.uneven.loader import LikeSampler, UnevenLoader, check_loader, inner_loader
from heterog.uneven.loss_probe import LEAST_SAMPLES, SAMPLES_AT_MOST, Verdict, agreed, probe
from heterog.uneven.lost_rank import lost_ranks_named
from heterog.uneven.planned_shares import read_planned, take_planned
from heterog.uneven.probe_said import chosen, norm_lines, refuse_unequal, verdict_lines
from heterog.uneven.share_checks import (
    check_accumulation,
    check_even,
    check_rest,
    coarse,
    even_passes,
    least_samples,
    models_of,
)
from heterog.uneven.shares_found import (
    WORTH,
    Found,
    LeftOut,
    candidates,
    device_name,
    exposed,
    left_out,
    within,
)
from heterog.uneven.step_times import all_reduce_seconds, measure, middle_half, typical
from heterog.uneven.trial_steps import Trial, gradient_bytes, unlogged

ATTEMPTS = 3  # measurements: around even shares, then at what the last one said
SHORT = 0.1  # seconds of a step, of which more are measured if they are not as predicted
ATTEMPTS_IF_SHORT = 5
AGREED = 1.10  # what is predicted and what is measured are as near as this, or their spread is said
BOUND = (12, 12, 6)  # even steps that each measurement may take, 30 in all,
BOUND_SECONDS = 5.0  # or so long, where steps are short and times the noisier
ENOUGH = 1.02  # shares that are predicted to be as near as this to the best are kept


def auto_shares(
    model,
    loader,
    step_fn: Callable,
    *,
    batch: int | None = None,
    accumulate: int = 1,
    shares: FilePath | None = None,
    most: int | None = None,
    rebalance: float | None = 0.05,
    check_every: int = 100,
    rounds: int = 7,
    also: Sequence = (),
    count: Callable | None = None,
    force: bool = False,
    device=None,
    seed: int = 0,
    say: Callable[[str], None] | None = print,
) -> UnevenLoader:
    """The loader, dealt out so that all ranks are done at the same time, with gradients weighted so
    that their sum is that of the whole batch. Call it on every rank, before the loop, and iterate
    over what it returns. By what gradients are to be weighed is found by a probe of step_fn; where
    no weighing is right, shares stay even.

    model        the DistributedDataParallel or fully_shard model, or a list of those that the step
                 trains (a GAN's)
    loader       the script's DataLoader, with its batch size of one rank
    step_fn      called with a batch, as the loop has it: computes the loss and returns it, or does
                 the whole step, with backward pass and update, which is then in the figures
    batch        samples of a global batch; by default the loader's, times the ranks, times accumulate
    accumulate   micro-batches whose gradients a rank of the even script accumulates; a rank then has
                 as many, and as large ones, as it can compute in the time of the others; of a
                 fully_shard model as many as the others, of other sizes. Update, and
                 sum gradients, where the loader's `last` is true
    shares       a file that keeps what was measured: rank 0 reads it if it is there, and writes it if
                 not; or a file of planned shares (heterog shares, heterog hand-over), which are taken
    most         samples that this rank can hold at once, where that is known; a GPU's memory is
                 measured
    rebalance    samples move in training where that gains more than this part of a step; None: never
    check_every  steps after which ranks are compared
    rounds       how often each size is measured
    also         what else step_fn changes: objects with state_dict, as a GradScaler
    count        a function of a batch to what the loss is a mean over (a number, or a tensor with
                 one element), where the probe does not find it
    force        unequal shares, weighed by samples, even where the loss couples samples
    device       where to move batches, if the loop does not
    seed         of the order of the samples, if the loader's sampler has none
    say          what to do with each line of the findings, on rank 0; None: nothing

    In one process there is nothing to measure; the loader is the same as in several. Everything that
    the measured steps change is put back: parameters, buffers, gradients, states of
    PyTorch's optimizers, random numbers.
    """
    uneven = even_loader(loader, batch, device, seed, accumulate)
    if uneven.sampler.ranks > 1:
        share_out(
            uneven, model, step_fn, most=most, rebalance=rebalance, check_every=check_every,
            rounds=rounds, also=also, say=say, count=count, force=force, shares=shares,
        )  # fmt: skip
    return uneven


def even_loader(
    loader, batch: int | None = None, device=None, seed: int = 0, accumulate: int = 1
) -> UnevenLoader:
    """The loader's batches at even shares, for `share_out`."""
    if isinstance(accumulate, bool) or not isinstance(accumulate, int) or accumulate < 1:
        raise ValueError(f"accumulate: {accumulate!r}; expected a number of micro-batches, 1 or more")
    if isinstance(loader, UnevenLoader):  # of a call before
        loader = loader.given
    inner, wrapped = inner_loader(loader)
    check_loader(inner)
    ranks, rank = 1, 0
    if dist.is_available() and dist.is_initialized():
        ranks, rank = dist.get_world_size(), dist.get_rank()
    batch = batch or inner.batch_sampler.batch_size * ranks * accumulate
    sampler = LikeSampler(inner, batch, ranks, rank, seed, accumulate)
    uneven = UnevenLoader(inner, wrapped, sampler, device)
    uneven.given = loader
    return uneven


def share_out(
    loader: UnevenLoader,
    model,
    step_fn: Callable,
    *,
    most: int | None,
    rebalance: float | None,
    check_every: int,
    rounds: int,
    also: Sequence,
    say: Callable[[str], None] | None,
    count: Callable | None = None,
    force: bool = False,
    shares: FilePath | None = None,
    first: int = 0,
    scale: int = 1,
) -> None:
    """Probes the loss, measures, and gives the ranks their shares from batch number `first` on.
    `scale` is what step_fn multiplies each rank's loss by."""
    wrapped = models_of(model)
    models = wrapped[0] if len(wrapped) == 1 else nn.ModuleList(wrapped)
    group, sampler = group_of(wrapped[0]), loader.sampler
    if sampler.rank != 0 or say is None:
        say = _nothing
    sampler.least = least_samples(models)
    sampler.together = any_sharded(models) or counted_by_lightning(wrapped, sampler.parts)
    check_accumulation(models, sampler)
    loader.models = [weighted_gradients(ddp, sampler) for ddp in wrapped]
    loader.weights = loader.models[0]
    for weights in loader.models:
        weights.scale = scale
    trial = Trial(models, loader.models, step_fn, loader)
    found, planned, begun = None, None, step_times.clock()
    say(
        f"heterog: probes the loss on a few samples, then times steps of {sampler.ranks} ranks, "
        f"{rounds} rounds at a time; what they change is put back"
    )
    with lost_ranks_named(group), untouched(models, also), unlogged(models):
        limits = _limits(trial, sampler, most)
        verdict = _verdict(trial, sampler, limits, count)
        loader.weighing = chosen(verdict, count)
        if verdict.talks:
            refuse_unequal(verdict, sampler, force)
        even = not (verdict.weighing or count or force)
        for line in verdict_lines(verdict, sampler.ranks if scale == 1 else 1, count, force):
            say(line)
        if even:
            check_even(sampler, limits)
        else:
            planned = from_first(lambda: read_planned(shares, sampler, limits), group)
            if planned is None:
                found = _kept_or_measured(trial, sampler, most, rounds, limits, shares, say)
    for weights in loader.models:
        weights.forget("iterate over the loader that heterog.auto_shares returned")
    loader.drawn = DrawnBatches(loader.models, 1 if sampler.together else sampler.parts)
    taken = found.samples_per_rank if found else planned or sampler.samples_per_rank
    check_rest(sampler, taken)
    if planned is not None:
        say(take_planned(sampler, planned, shares, first))
    if found is None:
        return
    sampler.change_shares(found.samples_per_rank, first)
    sampler.change_micro(found.times[sampler.rank].micro, first)
    loader.found = found
    if found.seconds < found.even_seconds:
        took = step_times.clock() - begun
        steps = math.ceil(took / (found.even_seconds - found.seconds))
        say(f"heterog: all that took {took:.1f} s, which shares of these sizes win back by step {steps}")
    for line in [*found.lines(), *norm_lines(models, found)]:
        say(line)
    if coarse(sampler) and found.speed_up < WORTH:
        say(
            f"heterog: {max(found.even)} samples a rank can hardly be shared out: if your loop accumulates "
            "gradients, accumulate= says how many batches, and ranks get different numbers of them"
        )
    if rebalance is not None and not sampler.together:  # those wait for each other all the time
        loader.balance = Balance(
            loader, sampler.least_of_step, bound=rebalance, every=check_every,
            lead=max(from_all(loader.asked_ahead, group)), say=say,
        )  # fmt: skip


def _limits(trial: Trial, sampler: LikeSampler, most: int | None) -> list[int]:
    """Samples of a pass of each rank at most, by what is known before anything ran."""
    bound = min(max(LEAST_SAMPLES, sampler.batch) if most is None else most, sampler.length)
    return from_all(max(least_samples(trial.ddp), bound), trial.group)


def _verdict(trial: Trial, sampler: LikeSampler, limits: list[int], count) -> Verdict:
    """What the first rank that could compare gradients found, on all ranks."""
    least = least_samples(trial.ddp)
    small = min(max(least, min(even_passes(sampler)) // 2), *limits)
    # Whole steps come first: in them DistributedDataParallel lays out its buckets (of a static graph,
    # one later), which would look like a step that talks. All ranks take
    # as many samples, since the loss may talk to the others.
    trial.load([small])
    steps = 3 if any(getattr(ddp, "static_graph", False) for ddp in wrapped_models(trial.ddp)) else 2
    measure(trial, trial.ddp, [], [partial(trial.step, [small])], steps)
    samples = min(SAMPLES_AT_MOST, max(LEAST_SAMPLES, *even_passes(sampler)), *limits)
    if samples < LEAST_SAMPLES:
        own = Verdict(None, why=f"a rank has memory for {samples} samples, not for {LEAST_SAMPLES}")
    else:
        own = probe(trial, samples, count)
    return agreed(own, from_all(own.without_functions(), trial.group))


def _kept_or_measured(trial: Trial, sampler: LikeSampler, most, rounds, limits, path, say) -> Found:
    """What the file has, or what is measured and then written into it."""
    if path is None:
        return _measured(trial, sampler, most, rounds, limits, say)
    training = Training(
        sampler.batch, sampler.parts, gradient_bytes(trial.ddp),
        tuple(from_all(device_name(trial.device), trial.group)), sampler.least_of_step,
        sampler.together,
    )  # fmt: skip
    found = from_first(lambda: read_kept(path, training), trial.group)
    if found is not None:
        say(f"heterog: the figures that follow were measured before: {os.fspath(path)}")
        return found
    found = _measured(trial, sampler, most, rounds, limits, say)
    from_first(lambda: write_kept(path, found, training, trial.updates), trial.group)
    return found


def _measured(
    trial: Trial, sampler: LikeSampler, most: int | None, rounds: int, limits: list[int], say
) -> Found:
    group, rank = trial.group, sampler.rank
    least = sampler.least
    size = even_passes(sampler)[rank]
    bound = limits[rank]
    passes = sampler.parts if sampler.together and sampler.parts > 1 else None
    micro = None if sampler.together else sampler.even_micro
    # Around even shares first, then also at what these say, until that is where they stand, and
    # until whole steps take as long as predicted. Whole steps of earlier attempts count as well.
    # Of a sharded model, no pass may find out that its samples do not fit.
    around = [size // 2, size] + ([] if sampler.together else [size + (size + 1) // 2])
    deals: list[Deal] = []  # even, as far as memory allows, and what was found
    seen: dict[Deal, list[float]] = {}  # seconds of whole steps
    short = settled = False
    for attempt in range(ATTEMPTS_IF_SHORT):
        own = [deal.of(rank, least) for deal in deals]
        sizes = sorted({max(least, min(n, bound)) for n in sum(own, around)})
        trial.load(sum(own, [least, *sizes]))
        more = max(0, attempt - 1) if short else 0
        steps = [partial(trial.step, micro) for micro in own]
        may_take = partial(_may_take, attempt, size * sampler.parts if sampler.parts > 1 else size)
        points, whole = measure(
            trial, trial.ddp, sizes, steps, rounds << more, least, may_take, sampler.parts
        )
        say(
            f"heterog: timed passes of {', '.join(map(str, sizes))} samples of rank 0"
            + "".join(f", steps of {' '.join(map(str, deal.shares))}" for deal in deals)
        )
        for deal, seconds in zip(deals, whole, strict=True):
            seen.setdefault(deal, []).extend(seconds)
        times = from_all(_step_time(points, sizes, trial, most, micro, passes), group)
        in_step = sampler.least_of_step
        best = Deal.of_shares(
            from_first(lambda: fair_shares(times, sampler.batch, in_step), group), times
        )
        if deals:
            even, taken = deals[0], deals[-1]
            at_even, at_taken = seen[even], seen[taken]
            hidden = exposed(typical(at_even), even.times(times), even.shares)
            predicted = slowest(taken.times(times), taken.shares) + hidden
            at_best = slowest(times, best.shares) + hidden
            agree = within(predicted, typical(at_taken), AGREED)
            settled = predicted <= ENOUGH * at_best
            short = typical(at_even) < SHORT
            last = attempt == (ATTEMPTS_IF_SHORT if short else ATTEMPTS) - 1
            if settled and agree or last:
                break
        shares = fair_shares([StepTime(0.0, 1.0, t.most) for t in times], sampler.batch, in_step)
        even = Deal(tuple(shares), (micro,) * sampler.ranks, passes)
        if not settled:
            deals = [even] if best == even else [even, best]

    nbytes = gradient_bytes(trial.ddp)
    all_reduce = 0.0
    if not sampler.together:
        all_reduce = all_reduce_seconds(nbytes, rounds, trial.device, group)
    found = Found(
        samples_per_rank=list(taken.shares),
        even=list(even.shares),
        devices=from_all(device_name(trial.device), group),
        times=taken.times(times),
        even_micro=micro,
        together=sampler.together,
        even_seconds=typical(at_even),
        seconds=typical(at_taken),
        predicted_seconds=predicted,
        spread=None if agree else middle_half(at_taken),
        all_reduce_bytes=nbytes,
        all_reduce_seconds=max(from_all(all_reduce, group)),
    )
    # Whoever accumulates batches of so few samples has more to share out than was tried. Without a
    # rank of a sharded model, the others would hold more of it.
    if not coarse(sampler) and not sampler.together:
        found = dataclasses.replace(found, leave_out=_better_left_out(found, trial, rounds))
    return from_first(lambda: found if found.speed_up >= 1 else found.kept_even(), group)


def _may_take(attempt: int, even: int, points: dict[int, float]) -> float:
    """Seconds of a measurement: of so many steps of `even` samples, as far as passes show that."""
    near = min(points, key=lambda size: abs(size - even), default=None)
    step = points[near] / near * even if near else 0.0
    return max(BOUND_SECONDS, BOUND[min(attempt, len(BOUND) - 1)] * step)


def _step_time(
    points: dict[int, float],
    sizes,
    trial: Trial,
    most: int | None,
    micro: int | None,
    passes: int | None,
) -> StepTime:
    """Of this rank, by the seconds of the sizes that fitted."""
    limits = [limit for limit in (most, trial.most()) if limit is not None]
    limits += [size - 1 for size in sizes if size not in points]
    limit = min(limits) if limits else None
    fitting = [size for size in points if limit is None or size <= limit]
    if not fitting:
        return StepTime(0.0, 1.0, 0, micro)  # fair_shares refuses that, on all ranks
    if micro is None:
        in_step = limit if limit is None or passes is None else limit * passes
        return StepTime(*fit_line(points), in_step, passes=passes)
    return StepTime(*fit_line(points), None, best_micro({n: points[n] for n in fitting}, micro))


def _better_left_out(found: Found, trial: Trial, rounds: int) -> dict[tuple[int, ...], LeftOut]:
    """Ranks without which steps would be faster, the all-reduce of the others measured. None where
    predictions turned out wrong: that is another one."""
    group = trial.group
    hosts = from_all(socket.gethostname(), group)
    if len(hosts) < 2 or dist.get_world_size() != len(hosts):
        return {}  # groups of some of the ranks can only be made where all processes take part
    gains = {}
    for ranks in candidates(hosts):
        # At best, nothing of the all-reduce is left to wait for.
        at_best = left_out(found, 0.0, ranks).gain
        if not from_first(lambda: at_best > WORTH and not found.spread, group):
            continue
        rest = [rank for rank in range(len(hosts)) if rank not in ranks]
        others = dist.new_group(rest)
        seconds = 0.0
        if dist.get_rank() in rest:
            seconds = all_reduce_seconds(found.all_reduce_bytes, rounds, trial.device, others)
            dist.destroy_process_group(others)
        gains[ranks] = left_out(found, max(from_all(seconds, group)), ranks)
    best = max(gains, key=lambda ranks: gains[ranks].gain, default=None)
    return {best: gains[best]} if best is not None and gains[best].gain > WORTH else {}


def _nothing(_line: str) -> None:
    pass
