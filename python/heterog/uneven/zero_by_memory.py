"""ZeRO-1 on cards of unequal memory: an optimizer's state is dealt by what each rank has free, over
PyTorch's ZeroRedundancyOptimizer."""

import math
import socket
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer

from heterog.base.data_parallel import is_sharded


class ZeroByMemory(ZeroRedundancyOptimizer):
    """Deals parameters in proportion to `memory`, in place of equally: bytes, or any other unit, by
    rank of the process group, the same on all ranks."""

    def __init__(self, params, optimizer_class: type, memory: Sequence[float], **options):
        self._memory = list(memory)
        super().__init__(params, optimizer_class, **options)

    def _partition_parameters(self, params_per_rank=None):
        if params_per_rank is None and not self._partition_parameters_cache:
            self._partition_parameters_cache = [[] for _ in self._memory]
            taken = [0] * len(self._memory)
            for group in self.param_groups:  # in order: a group that is added changes none before it
                sizes = [p.numel() for p in group["params"]]
                ranks = dealt(sizes, self._memory, taken)
                of_ranks = [
                    [p for p, rank in zip(group["params"], ranks, strict=True) if rank == one]
                    for one in range(len(taken))
                ]
                taken = [n + sum(p.numel() for p in own) for n, own in zip(taken, of_ranks, strict=True)]
                self._partition_param_group(group, of_ranks)
        return super()._partition_parameters(params_per_rank)

    @property
    def elements_per_rank(self) -> list[int]:
        """Elements of the parameters whose state each rank has."""
        return [
            sum(p.numel() for group in groups for p in group["params"])
            for groups in self._partition_parameters()
        ]


def zero_by_memory(
    model,
    optimizer_class: type[torch.optim.Optimizer],
    *,
    memory: float | None = None,
    say: Callable[[str], None] | None = print,
    **options,
) -> ZeroByMemory:
    """An optimizer of all ranks, each of which keeps the state of some parameters, in proportion to its
    free memory; it updates those and sends them to the others. Call it on every rank, when the model
    is on its device.

    model            a DistributedDataParallel model, or another whose gradients are the same on all
                     ranks; or groups of parameters, as PyTorch's optimizers take them
    optimizer_class  torch.optim.AdamW, or another that updates each parameter by itself
    memory           bytes that this rank has for state; by default what its GPU, or the host divided
                     by its ranks, has free beside the gradients
    say              what takes the line of what was dealt, on rank 0; None: nothing
    options          of the optimizer (lr, …), and process_group and parameters_as_bucket_view

    Whole checkpoints, as the optimizer of one process has them: consolidate_state_dict(to=0) on every
    rank, then state_dict() on rank 0. load_state_dict takes such a one, also of other memory or
    another number of ranks.
    """
    if isinstance(model, nn.Module) and is_sharded(model):
        raise ValueError(
            "model: fully_shard has cut its state up among the ranks already, equally: take the "
            "optimizer as it is"
        )
    if options.get("overlap_with_ddp"):
        raise ValueError(
            "overlap_with_ddp: True; then PyTorch deals parameters by the buckets of gradients: leave it out"
        )
    if not (dist.is_available() and dist.is_initialized()):
        raise ValueError("zero_by_memory: no ranks: call torch.distributed.init_process_group first")
    if memory is not None and not (isinstance(memory, (int, float)) and 0 <= memory < math.inf):
        raise ValueError(f"memory: {memory!r}; expected bytes, 0 or more")
    params = [p for p in model.parameters() if p.requires_grad] if isinstance(model, nn.Module) else list(model)
    flat = [q for p in params for q in (p["params"] if isinstance(p, dict) else [p])]
    dtypes = sorted({str(p.dtype).removeprefix("torch.") for p in flat})
    if len(dtypes) != 1:
        found = f"parameters of {' and '.join(dtypes)}" if dtypes else "no parameters that learn"
        raise ValueError(f"model: {found}; ZeroRedundancyOptimizer takes those of one dtype")
    group = options.get("process_group") or dist.group.WORLD
    free = _of_all(_free(flat, group) if memory is None else memory, group)
    if sum(free) <= 0:
        raise ValueError(f"memory: no rank has any left beside its gradients ({len(free)} ranks)")
    optimizer = ZeroByMemory(params, optimizer_class, free, **options)
    if say is not None and dist.get_rank(group) == 0:
        elements = optimizer.elements_per_rank
        parts = [
            f"rank {rank} ({memory / 1e9:.1f} GB free): {100 * own / sum(elements):.0f} %"
            for rank, (memory, own) in enumerate(zip(free, elements, strict=True))
        ]
        say(f"heterog: of the optimizer's state of {sum(elements)} elements, {'; '.join(parts)}")
    return optimizer


def dealt(sizes: Sequence[int], memory: Sequence[float], taken: Sequence[int]) -> list[int]:
    """The rank of each parameter, the largest first, to the rank that is then filled least, relative
    to its memory; ties: the one that was, then the one with more memory, then the earlier."""
    taken = list(taken)
    ranks = [0] * len(sizes)
    able = [rank for rank, free in enumerate(memory) if free > 0]
    for place in sorted(range(len(sizes)), key=lambda n: (-sizes[n], n)):
        size = sizes[place]
        ranks[place] = min(
            able,
            key=lambda r: ((taken[r] + size) / memory[r], taken[r] / memory[r], -memory[r], r),
        )
        taken[ranks[place]] += sizes[place]
    return ranks


def _free(parameters: Sequence[torch.Tensor], group) -> float:
    """Bytes, less those of gradients that are still to come."""
    device = parameters[0].device
    gradients = sum(p.numel() * p.element_size() for p in parameters if p.grad is None)
    hosts = _of_all(socket.gethostname(), group)
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        free = torch.cuda.mem_get_info(device)[0] + unused
    else:
        free = _host_memory() / hosts.count(socket.gethostname())
    return max(0.0, free - gradients)


def _host_memory() -> int:
    """Bytes that Linux can give without swapping."""
    with open("/proc/meminfo", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    raise ValueError("memory: the system does not say what is free; give this rank's bytes")


def _of_all(value, group) -> list:
    values = [None] * dist.get_world_size(group)
    dist.all_gather_object(values, value, group=group)
    return values
