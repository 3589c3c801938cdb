"""What ranks tell each other before a training: objects of any kind."""

from collections.abc import Callable

import torch.distributed as dist

from heterog.base.errors import HeterogError


def from_all(value, group) -> list:
    values = [None] * dist.get_world_size(group)
    dist.all_gather_object(values, value, group=group)
    return values


def from_first(decide: Callable, group):
    """What the first rank decides, or why it cannot, on all ranks."""
    decided = [None]
    if dist.get_rank(group) == 0:
        try:
            decided = [decide()]
        except (ValueError, HeterogError) as error:
            decided = [error]
    dist.broadcast_object_list(decided, dist.get_global_rank(group, 0), group)
    if isinstance(decided[0], Exception):
        raise decided[0]
    return decided[0]
