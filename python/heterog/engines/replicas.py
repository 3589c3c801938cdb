"""Replicas of a pipeline side by side: each has a device in every stage, and its part of every micro-batch.

What one replica's stages send each other PyTorch's schedule sends. Across a stage's replicas gradients are
summed once a step, when its passes are over, as `hand-over` predicts it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from heterog.base.errors import InputError
from heterog.engines.handed_over import HandedOver

CHUNK_BYTES = 25 << 20  # of gradients that are summed in one all-reduce: they are copied for it


@dataclass
class Place:
    """Where this rank is.

    along    the group of its replica's ranks, stage by stage
    across   the group of its stage's ranks, replica by replica; None where the stage has one
    """

    stage: int
    replica: int
    along: Any
    across: Any


def take_place(handed: HandedOver, rank: int, group) -> Place:
    """Makes the groups; every rank of `group` has to call it. Others of the job need not."""
    stage, replica = divmod(rank, handed.replicas)
    if handed.replicas == 1:
        return Place(stage, replica, group, None)
    along = [number * handed.replicas + replica for number in range(len(handed.modules))]
    across = [stage * handed.replicas + number for number in range(handed.replicas)]
    # All make that of their replica first, so nobody waits in a circle.
    made = [
        dist.new_group(
            [global_rank(group, one) for one in ranks],
            backend=None if group is None else dist.get_backend_config(group),
            use_local_synchronization=True,
        )
        for ranks in (along, across)
    ]
    return Place(stage, replica, *made)


def own_rows(handed: HandedOver, replica: int, batch: torch.Tensor) -> torch.Tensor:
    """Of every micro-batch of a whole batch, those of the replica, one micro-batch behind the other."""
    if handed.replicas == 1:
        return batch
    parts = batch.unflatten(0, (handed.micro_batches, handed.micro_batch))
    return parts[:, handed.rows(replica)].flatten(0, 1)


@torch.no_grad()
def begin_alike(model: nn.Module, place: Place) -> None:
    """Parameters and buffers are those of the first replica."""
    if place.across is None:
        return
    first = global_rank(place.across, 0)
    for tensor in (*model.parameters(), *model.buffers()):
        values = tensor.detach().contiguous()
        dist.broadcast(values, first, group=place.across)
        if values.data_ptr() != tensor.data_ptr():
            tensor.copy_(values)


@torch.no_grad()
def sum_across(model: nn.Module, place: Place) -> None:
    """Sums what gradients there are over the replicas; all have the same bits then."""
    if place.across is None:
        return
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if not named:
        return
    has = [p.grad is not None for _, p in named]
    anywhere = torch.tensor(has, dtype=torch.int32, device=named[0][1].device)
    dist.all_reduce(anywhere, dist.ReduceOp.MAX, group=place.across)
    gradients = []
    for (name, parameter), any_has in zip(named, anywhere.tolist(), strict=True):
        if not any_has:
            continue
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        if parameter.grad.layout != torch.strided:
            raise InputError(
                f"{name}: its gradient is sparse; on stages of several devices gradients are dense: make the "
                "module with sparse=False"
            )
        gradients.append(parameter.grad)
    for chunk in _chunks(gradients):
        summed = torch.cat([gradient.flatten() for gradient in chunk])
        dist.all_reduce(summed, group=place.across)
        for gradient, values in zip(chunk, summed.split([g.numel() for g in chunk]), strict=True):
            gradient.copy_(values.view(gradient.shape))


def _chunks(tensors: list[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Neighbours of one kind, up to CHUNK_BYTES, or one that is larger."""
    chunk: list[torch.Tensor] = []
    for tensor in tensors:
        nbytes = sum(one.nbytes for one in chunk) + tensor.nbytes
        if chunk and (nbytes > CHUNK_BYTES or (tensor.dtype, tensor.device) != (chunk[0].dtype, chunk[0].device)):
            yield chunk
            chunk = []
        chunk.append(tensor)
    if chunk:
        yield chunk


def global_rank(group, rank: int) -> int:
    return rank if group is None else dist.get_global_rank(group, rank)
