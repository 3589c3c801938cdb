"""The models whose gradients PyTorch averages over ranks, and what differs between them here:
DistributedDataParallel, where ranks meet once a step, and fully_shard (FSDP2), where all ranks gather
parameters in every pass, so that all make as many."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel

try:  # public from PyTorch 2.6 on
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor, Replicate, Shard
except ImportError:
    FSDPModule = DTensor = Replicate = Shard = None


def own_collectives(models: nn.Module) -> set[str]:
    """Operators of c10d by which sharded models meet in each pass, and their user's loss hardly does."""
    sharded = [model for model in wrapped_models(models) if is_sharded(model)]
    replicated = any(next(model.parameters()).device_mesh.ndim > 1 for model in sharded)
    return {"allgather_base", "reduce_scatter_base"} | ({"allreduce"} if replicated else set())


def is_sharded(model: nn.Module) -> bool:
    return FSDPModule is not None and isinstance(model, FSDPModule)


def is_fsdp1(model: nn.Module) -> bool:
    """FullyShardedDataParallel, which fully_shard took the place of."""
    return isinstance(model, FullyShardedDataParallel)


def is_wrapped(model: nn.Module) -> bool:
    return isinstance(model, DistributedDataParallel) or is_sharded(model)


def wrapped_models(models: nn.Module) -> list[nn.Module]:
    """The outermost of those inside."""
    if is_wrapped(models):
        return [models]
    return [found for child in models.children() for found in wrapped_models(child)]


def any_sharded(models: nn.Module) -> bool:
    return any(map(is_sharded, wrapped_models(models)))


def group_of(model: nn.Module):
    """Of all ranks whose gradients are averaged."""
    if not is_sharded(model):
        return model.process_group
    mesh = next(model.parameters()).device_mesh
    return mesh.get_group() if mesh.ndim == 1 else dist.group.WORLD


def device_of(model: nn.Module) -> torch.device:
    if not is_sharded(model):
        return model.device
    kind = next(model.parameters()).device_mesh.device_type
    return torch.device(kind, torch.cuda.current_device()) if kind == "cuda" else torch.device(kind)


def check_sharding(model: nn.Module) -> None:
    """Refuses what is not sharded as a whole, over all ranks, by its data parallelism alone."""
    ranks = dist.get_world_size()
    for name, parameter in model.named_parameters():
        if not isinstance(parameter, DTensor):
            raise ValueError(
                f"model: its parameter {name} is not sharded: call fully_shard on the whole model "
                "after its layers, without ignored_params"
            )
        mesh, placements = parameter.device_mesh, parameter.placements
        known = (Replicate, Shard)[2 - len(placements) :]
        right = len(placements) <= 2 and all(map(isinstance, placements, known))
        if not right or mesh.size() != ranks:
            raise ValueError(
                f"model: its parameter {name} is {', '.join(map(str, placements))} over "
                f"{mesh.size()} of {ranks} ranks; shares are found for fully_shard over all ranks, "
                "also replicated (HSDP), without tensor or pipeline parallelism"
            )


def gradient_leaves(model: nn.Module) -> list[nn.Parameter]:
    """The parameters into which a backward pass of this rank puts its own gradients: what learns; of
    a sharded model the whole parameters that it computes with. Those stay the same objects, so hooks
    stay on them. All ranks must call it."""
    if not is_sharded(model):
        return [p for p in model.parameters() if p.requires_grad]
    leaves = []
    for module in model.modules():
        if is_sharded(module):
            module.unshard()
            whole = [p for p in module.parameters() if not isinstance(p, DTensor)]
            leaves += [p for p in whole if p.requires_grad]
            module.reshard()
    return leaves


def sums_gradients(model: nn.Module) -> bool:
    """Whether those of a pass that begins now are summed over the ranks, as far as that is known."""
    return is_sharded(model) or model.require_backward_grad_sync


@contextmanager
def not_summed(models: nn.Module) -> Iterator[None]:
    """no_sync() of all that are not sharded: whole gradients of the others might not fit."""
    with ExitStack() as stack:
        for model in wrapped_models(models):
            if not is_sharded(model):
                stack.enter_context(model.no_sync())
                stack.callback(model.register_forward_pre_hook(_sums_nothing).remove)
        yield


def _sums_nothing(model: nn.Module, _inputs) -> None:
    """Before each pass: Lightning ends a training_step that optimizes by hand with sums switched on."""
    model.require_backward_grad_sync = False


@contextmanager
def apart(models: nn.Module) -> Iterator[None]:
    """No step inside waits for another rank: no gradients are summed, no buffers sent, and
    SyncBatchNorm takes its own statistics. Not so where a model is sharded. `models`: one that is
    wrapped, or a module of several."""
    replicated = [model for model in wrapped_models(models) if not is_sharded(model)]
    norms = [m for m in models.modules() if isinstance(m, nn.SyncBatchNorm)]
    kept = [ddp.require_forward_param_sync for ddp in replicated]
    for norm in norms:
        norm.forward = nn.modules.batchnorm._BatchNorm.forward.__get__(norm)
    try:
        with not_summed(models):
            for ddp in replicated:
                ddp.require_forward_param_sync = False
            yield
    finally:
        for ddp, sent in zip(replicated, kept, strict=True):
            ddp.require_forward_param_sync = sent
        for norm in norms:
            del norm.forward


def in_shards(model: nn.Module) -> None:
    """A pass without gradients leaves the outermost parameters whole."""
    for module in model.modules():
        if is_sharded(module):
            module.reshard()


def own_part(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank has of it; writing to it writes to the tensor."""
    return tensor.to_local() if DTensor is not None and isinstance(tensor, DTensor) else tensor
