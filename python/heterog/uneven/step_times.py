"""Times a user's training steps on every rank, apart from the others and together, and the
all-reduce between them.

Ranks measure at the same time, and each goes on until all have measured. That is the condition of
the training that they are measured for: at fair shares every rank computes all the time, beside the
others of its machine, which take of the same cores, memory, wires and power. In turn, each would be
measured on a machine that it has for itself and never has again.

Ranks of a sharded model meet in every pass, so that none can be timed apart from the others. There each
in its turn takes the samples that are timed, and the others as few as can be.
"""

import math
import time
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import nn

from heterog.base.data_parallel import any_sharded, apart, device_of, group_of, wrapped_models
from heterog.uneven.lost_rank import look

clock = time.perf_counter
# Seconds that are timed at a time, by as many steps as they take. A pause is a gift: a core that rested
# runs faster for a while, and a process with a quota has saved up some of it (periods of 10 ms, say).
# Passes of a few milliseconds timed by two or three looked a third faster than a training's.
LONG_ENOUGH = 0.1
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


def measure(
    run: Callable[[int], None],
    ddp_model: nn.Module,
    sizes: Sequence[int],
    whole_steps: Sequence[Callable[[], None]],
    rounds: int,
    least: int = 1,
    bound: Callable[[dict[int, float]], float] | None = None,
    passes: int = 1,
) -> tuple[dict[int, float], list[list[float]]]:
    """Seconds of a pass of each size on this rank, apart from the others, and of each of the whole
    steps, in which gradients are summed: of those, every round's, of the slowest rank.

    All are taken in turn, round after round, so that what slows a machine for a while slows all of
    them. Short steps are taken several in a row, as a training does. A size that does not fit in the
    GPU's memory is left out; of a sharded model it ends the run, since the others wait in the midst
    of the pass. `least`: samples of the ranks that are not timed then. `bound`: seconds that all of it
    may take, by those of the sizes; no round begins that would take longer on all ranks. `passes`: of
    a whole step at even shares.
    """
    begun = clock()
    first = wrapped_models(ddp_model)[0]
    group, device = group_of(first), device_of(first)
    together = any_sharded(ddp_model)
    with apart(ddp_model):
        fitting = _warmed_up(run, sizes, device, group) if together else []
        fitting = fitting or [size for size in sizes if _fits(run, size)]
        shortest = timed(run, min(fitting), device) if fitting else LONG_ENOUGH
    in_a_row = min(IN_A_ROW, math.ceil(LONG_ENOUGH / max(shortest, 1e-6)))
    steps = _most(in_a_row, device, group)
    own: dict[int, list[float]] = {size: [] for size in fitting}
    whole = torch.zeros(rounds, len(whole_steps), dtype=torch.float64)
    first_round = clock()
    for turn in range(rounds):
        if turn and bound is not None:
            a_round = (clock() - first_round) / turn
            limit = bound({size: typical(times) for size, times in own.items()})
            if not _most(int(clock() - begun + a_round <= limit), device, group):
                whole = whole[:turn]
                break
        if together:
            _in_turn(run, own, least, steps, device, group)
        with apart(ddp_model):
            dist.barrier(group)
            for size in [] if together else fitting:
                own[size].append(timed(run, size, device, steps))
            others = dist.all_reduce(torch.zeros(1, device=device), group=group, async_op=True)
            while fitting and not together and not others.is_completed():
                look()  # a rank that failed may take long to go
                timed(run, fitting[turn % len(fitting)], device)
            others.wait()
        for number, step in enumerate(whole_steps):
            dist.barrier(group)
            in_turn = max(1, steps // passes)
            whole[turn, number] = timed(lambda _, step=step: step(), None, device, in_turn)
    whole = whole.to(device)
    dist.all_reduce(whole, dist.ReduceOp.MAX, group=group)
    return {size: typical(times) for size, times in own.items()}, whole.T.tolist()


def _warmed_up(run: Callable[[int], None], sizes: Sequence[int], device, group) -> list[int]:
    """The sizes, each of which ran once; as many passes on every rank."""
    for place in range(_most(len(sizes), device, group)):
        run(sizes[min(place, len(sizes) - 1)])
    return list(sizes)


def _in_turn(run, own: dict[int, list[float]], least: int, steps: int, device, group) -> None:
    """Adds the seconds of each size on each rank, the others taking `least` samples meanwhile."""
    sizes, rank = list(own), dist.get_rank(group)
    places = _most(len(sizes), device, group)
    for other in range(dist.get_world_size(group)):
        for place in range(places):
            size = sizes[min(place, len(sizes) - 1)] if other == rank else least
            dist.barrier(group)
            seconds = timed(run, size, device, steps)
            if other == rank:
                own[size].append(seconds)


def _most(count: int, device, group) -> int:
    of_all = torch.tensor([count], device=device)
    dist.all_reduce(of_all, dist.ReduceOp.MAX, group=group)
    return int(of_all)


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
    bucket = torch.zeros(-(-min(nbytes, BUCKET) // 4), device=device)
    pieces = [bucket] * (nbytes // BUCKET)
    if rest := nbytes % BUCKET:
        pieces.append(bucket[: -(-rest // 4)])
    found = []
    for _ in range(rounds + 1):
        dist.barrier(group)
        _wait_for(device)
        start = clock()
        for piece in pieces:
            dist.all_reduce(piece, group=group)
        _wait_for(device)
        found.append(clock() - start)
    return typical(found[1:])


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
