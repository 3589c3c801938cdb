"""Times a user's training steps on every rank, apart from the others and together, and the
all-reduce between them.

Ranks measure at the same time, and each goes on until all have measured. That is the condition of
the training that they are measured for: at fair shares every rank computes all the time, beside the
others of its machine, which take of the same cores, memory, wires and power. In turn, each would be
measured on a machine that it has for itself and never has again.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
import torch.distributed as dist
from torch import nn

from heterog.lost_rank import look

clock = time.perf_counter
LONG_ENOUGH = 0.02  # seconds that are timed at a time, by as many steps as they take,
IN_A_ROW = 16  # up to these
BUCKET = 25 << 20  # bytes: DistributedDataParallel's default


def timed(run: Callable, samples, device: torch.device, steps: int = 1) -> float:
    """Seconds of one `run(samples)`, the mean of `steps` in a row."""
    _wait_for(device)
    start = clock()
    for _ in range(steps):
        run(samples)
    _wait_for(device)
    return (clock() - start) / steps


@contextmanager
def apart(models: nn.Module) -> Iterator[None]:
    """No step inside waits for another rank: no gradients are summed, no buffers sent, and
    SyncBatchNorm takes its own statistics. `models`: one that is wrapped, or a module of several."""
    wrapped = wrapped_models(models)
    norms = [m for m in models.modules() if isinstance(m, nn.SyncBatchNorm)]
    kept = [ddp.require_forward_param_sync for ddp in wrapped]
    for norm in norms:
        norm.forward = nn.modules.batchnorm._BatchNorm.forward.__get__(norm)
    try:
        with not_summed(models):
            for ddp in wrapped:
                ddp.require_forward_param_sync = False
            yield
    finally:
        for ddp, sent in zip(wrapped, kept, strict=True):
            ddp.require_forward_param_sync = sent
        for norm in norms:
            del norm.forward


def wrapped_models(models: nn.Module) -> list[nn.parallel.DistributedDataParallel]:
    return [m for m in models.modules() if isinstance(m, nn.parallel.DistributedDataParallel)]


@contextmanager
def not_summed(models: nn.Module) -> Iterator[None]:
    """no_sync() of all of them."""
    with ExitStack() as stack:
        for ddp in wrapped_models(models):
            stack.enter_context(ddp.no_sync())
        yield


def measure(
    run: Callable[[int], None],
    ddp_model: nn.Module,
    sizes: Sequence[int],
    whole_steps: Sequence[Callable[[], None]],
    rounds: int,
) -> tuple[dict[int, float], list[list[float]]]:
    """Seconds of a pass of each size on this rank, apart from the others, and of each of the whole
    steps, in which gradients are summed: of those, every round's, of the slowest rank.

    All are taken in turn, round after round, so that what slows a machine for a while slows all of
    them. Short steps are taken several in a row, as a training does. A size that does not fit in the
    GPU's memory is left out.
    """
    first = wrapped_models(ddp_model)[0]
    group, device = first.process_group, first.device
    with apart(ddp_model):
        fitting = [size for size in sizes if _fits(run, size)]
        shortest = timed(run, min(fitting), device) if fitting else LONG_ENOUGH
    in_a_row = torch.tensor([min(IN_A_ROW, math.ceil(LONG_ENOUGH / max(shortest, 1e-6)))])
    in_a_row = in_a_row.to(device)
    dist.all_reduce(in_a_row, dist.ReduceOp.MAX, group=group)
    steps = int(in_a_row)
    own: dict[int, list[float]] = {size: [] for size in fitting}
    whole = torch.zeros(rounds, len(whole_steps), dtype=torch.float64)
    for turn in range(rounds):
        with apart(ddp_model):
            dist.barrier(group)
            for size in fitting:
                own[size].append(timed(run, size, device, steps))
            others = dist.all_reduce(torch.zeros(1, device=device), group=group, async_op=True)
            while fitting and not others.is_completed():
                look()  # a rank that failed may take long to go
                timed(run, fitting[turn % len(fitting)], device)
            others.wait()
        for number, step in enumerate(whole_steps):
            dist.barrier(group)
            whole[turn, number] = timed(lambda _, step=step: step(), None, device, steps)
    whole = whole.to(device)
    dist.all_reduce(whole, dist.ReduceOp.MAX, group=group)
    return {size: typical(times) for size, times in own.items()}, whole.T.tolist()


def typical(times: Sequence[float]) -> float:
    """The lower quartile: what other work on the machine adds to fewer than three of four steps is
    not counted."""
    return sorted(times)[len(times) // 4]


def middle_half(times: Sequence[float]) -> tuple[float, float]:
    """From the lower to the upper quartile."""
    ordered = sorted(times)
    return ordered[len(ordered) // 4], ordered[min(len(ordered) - 1, 3 * len(ordered) // 4)]


def _fits(run: Callable[[int], None], size: int) -> bool:
    """Runs the step once, to warm up."""
    try:
        run(size)
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return False
    return True


def all_reduce_seconds(nbytes: int, rounds: int, device: torch.device, group) -> float:
    """Seconds of an all-reduce of that many bytes, bucket by bucket, on this rank."""
    bucket = torch.zeros(min(nbytes, BUCKET) // 4 + 1, device=device)
    pieces = -(-nbytes // BUCKET)
    found = []
    for _ in range(rounds + 1):
        dist.barrier(group)
        _wait_for(device)
        start = clock()
        for _ in range(pieces):
            dist.all_reduce(bucket, group=group)
        _wait_for(device)
        found.append(clock() - start)
    return typical(found[1:])


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
