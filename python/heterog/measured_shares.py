"""How many samples each rank of a plain DistributedDataParallel script should take, found by
measuring its own steps: no graph, no cluster file."""

import dataclasses
import socket
from collections.abc import Callable, Sequence

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from heterog.balance import Balance
from heterog.fair_shares import StepTime, fair_shares, fit_line, slowest
from heterog.gradient_weights import weighted_gradients
from heterog.shares_found import WORTH, Found, candidates, device_name, exposed, left_out_gain
from heterog.step_times import all_reduce_seconds, measure
from heterog.trial_steps import Trial, gradient_bytes
from heterog.uneven_loader import LikeSampler, UnevenLoader, check_loader, inner_loader
from heterog.untouched import untouched

ATTEMPTS = 3  # measurements: around even shares, then at what the last one said
ENOUGH = 1.02  # shares that are predicted to be as near as this to the best are kept


def auto_shares(
    model,
    loader,
    step_fn: Callable,
    *,
    batch: int | None = None,
    most: int | None = None,
    rebalance: float | None = 0.05,
    check_every: int = 100,
    rounds: int = 7,
    also: Sequence = (),
    device=None,
    seed: int = 0,
    say: Callable[[str], None] | None = print,
) -> UnevenLoader:
    """The loader, dealt out so that all ranks are done at the same time, with gradients weighted
    exactly. Call it on every rank, before the loop, and iterate over what it returns.

    model        the DistributedDataParallel model
    loader       the script's DataLoader, with its batch size of one rank
    step_fn      called with a batch, as the loop has it: computes the loss and returns it, or does
                 the whole step, with backward pass and update, which is then in the figures
    batch        samples of a global batch; by default the loader's, times the ranks
    most         samples that this rank can hold at most, where that is known; a GPU's memory is
                 measured
    rebalance    samples move in training where that gains more than this part of a step; None: never
    check_every  steps after which ranks are compared
    rounds       how often each size is measured
    also         what else step_fn changes: objects with state_dict, as a GradScaler
    device       where to move batches, if the loop does not
    seed         of the order of the samples, if the loader's sampler has none
    say          what to do with each line of the findings, on rank 0; None: nothing

    In one process there is nothing to measure; the loader is the same as in several. Everything that
    the measured steps change is put back: parameters, buffers, gradients, states of
    PyTorch's optimizers, random numbers.
    """
    uneven = even_loader(loader, batch, device, seed)
    if uneven.sampler.ranks > 1:
        share_out(
            uneven, model, step_fn, most=most, rebalance=rebalance, check_every=check_every,
            rounds=rounds, also=also, say=say,
        )  # fmt: skip
    return uneven


def even_loader(loader, batch: int | None = None, device=None, seed: int = 0) -> UnevenLoader:
    """The loader's batches at even shares, for `share_out`."""
    inner, wrapped = inner_loader(loader)
    check_loader(inner)
    ranks, rank = 1, 0
    if dist.is_available() and dist.is_initialized():
        ranks, rank = dist.get_world_size(), dist.get_rank()
    sampler = LikeSampler(inner, batch or inner.batch_size * ranks, ranks, rank, seed)
    return UnevenLoader(inner, wrapped, sampler, device)


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
    first: int = 0,
) -> None:
    """Measures, and gives the ranks their shares from batch number `first` on."""
    ddp = ddp_of(model)
    group, sampler = ddp.process_group, loader.sampler
    weights = weighted_gradients(ddp, sampler)
    trial = Trial(ddp, weights, step_fn, loader)
    with untouched(ddp, also):
        found = _measured(trial, sampler, most, rounds)
    sampler.change_shares(found.samples_per_rank, first)
    loader.weights = weights
    loader.found = found
    if sampler.rank != 0 or say is None:
        say = _nothing
    for line in found.lines():
        say(line)
    if rebalance is not None:
        loader.balance = Balance(
            loader, least_samples(ddp), bound=rebalance, every=check_every,
            lead=max(_from_all(loader.asked_ahead, group)), say=say,
        )  # fmt: skip


def ddp_of(model) -> DistributedDataParallel:
    """The DistributedDataParallel model, which Fabric and torch.compile wrap once more."""
    for inner in (model, *(getattr(model, n, None) for n in ("_forward_module", "_orig_mod"))):
        if isinstance(inner, DistributedDataParallel):
            return inner
    raise ValueError(
        f"model: {type(model).__name__}; wrap the model in DistributedDataParallel first"
    )


def least_samples(model) -> int:
    """Batch normalisation refuses to train on one sample."""
    norms = (isinstance(m, nn.modules.batchnorm._BatchNorm) for m in model.modules())
    return 2 if any(norms) else 1


def _measured(trial: Trial, sampler: LikeSampler, most: int | None, rounds: int) -> Found:
    group, rank = trial.group, sampler.rank
    least = least_samples(trial.ddp)
    share = sampler.samples_per_rank[rank]
    bound = max(least, min(sampler.batch if most is None else most, sampler.length))
    # Whole steps come first: in them DistributedDataParallel lays out its buckets.
    small = _from_all(min(max(least, share // 2), bound), group)
    trial.load([small[rank]])
    measure(trial, trial.ddp, [], [small], 2)

    # Around even shares first, then also at what these say, until that is where they stand.
    around = [share // 2, share, share + (share + 1) // 2]
    splits: list[list[int]] = []  # even, as far as memory allows, and what was found
    for attempt in range(ATTEMPTS):
        sizes = around + [split[rank] for split in splits]
        sizes = sorted({max(least, min(size, bound)) for size in sizes})
        trial.load(sizes)
        points, whole = measure(trial, trial.ddp, sizes, splits, rounds)
        times = _from_all(_step_time(points, sizes, trial, most), group)
        better = _from_first(lambda: fair_shares(times, sampler.batch, least), group)
        if splits:
            even, shares = splits
            hidden = exposed(whole[0], times, even)
            predicted = slowest(times, shares) + hidden
            at_best = slowest(times, better) + hidden
            if predicted <= ENOUGH * at_best or attempt == ATTEMPTS - 1:
                break
        even = fair_shares([StepTime(0.0, 1.0, t.most) for t in times], sampler.batch, least)
        splits = [even, better]

    nbytes = gradient_bytes(trial.ddp)
    all_reduce = all_reduce_seconds(nbytes, rounds, trial.device, group)
    found = Found(
        samples_per_rank=shares,
        even=even,
        devices=_from_all(device_name(trial.device), group),
        times=times,
        even_seconds=whole[0],
        seconds=whole[1],
        predicted_seconds=predicted,
        all_reduce_bytes=nbytes,
        all_reduce_seconds=max(_from_all(all_reduce, group)),
    )
    found = dataclasses.replace(found, leave_out=_better_left_out(found, trial, rounds))
    return _from_first(lambda: found if found.speed_up >= 1 else found.kept_even(), group)


def _step_time(points: dict[int, float], sizes, trial: Trial, most: int | None) -> StepTime:
    """Of this rank, by the seconds of the sizes that fitted."""
    limits = [limit for limit in (most, trial.most()) if limit is not None]
    limits += [size - 1 for size in sizes if size not in points]
    if not points:
        return StepTime(0.0, 1.0, 0)  # fair_shares refuses that, on all ranks
    return StepTime(*fit_line(points), min(limits) if limits else None)


def _better_left_out(found: Found, trial: Trial, rounds: int) -> dict[tuple[int, ...], float]:
    """Ranks without which steps would be faster, the all-reduce of the others measured."""
    group = trial.group
    hosts = _from_all(socket.gethostname(), group)
    if len(hosts) < 2 or dist.get_world_size() != len(hosts):
        return {}  # groups of some of the ranks can only be made where all processes take part
    gains = {}
    for ranks in candidates(hosts):
        # At best, nothing of the all-reduce is left to wait for.
        at_best = left_out_gain(found, found.all_reduce_seconds, ranks)
        if not _from_first(lambda: at_best > WORTH, group):
            continue
        rest = [rank for rank in range(len(hosts)) if rank not in ranks]
        others = dist.new_group(rest)
        seconds = 0.0
        if dist.get_rank() in rest:
            seconds = all_reduce_seconds(found.all_reduce_bytes, rounds, trial.device, others)
            dist.destroy_process_group(others)
        saved = found.all_reduce_seconds - max(_from_all(seconds, group))
        gains[ranks] = left_out_gain(found, saved, ranks)
    best = max(gains, key=gains.get, default=None)
    return {best: gains[best]} if best is not None and gains[best] > WORTH else {}


def _from_all(value, group) -> list:
    values = [None] * dist.get_world_size(group)
    dist.all_gather_object(values, value, group=group)
    return values


def _from_first(decide: Callable, group):
    """What the first rank decides, or why it cannot, on all ranks."""
    decided = [None]
    if dist.get_rank(group) == 0:
        try:
            decided = [decide()]
        except ValueError as error:
            decided = [error]
    dist.broadcast_object_list(decided, dist.get_global_rank(group, 0), group)
    if isinstance(decided[0], ValueError):
        raise decided[0]
    return decided[0]


def _nothing(_line: str) -> None:
    pass
