"""torch.nn.SyncBatchNorm on CPUs: PyTorch's own function, with its own communication, over CPU
formulas of the five kernels that PyTorch has for GPUs alone."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules._functions import SyncBatchNorm as SyncFunction


class CpuSyncBatchNorm(nn.SyncBatchNorm):
    """What nn.SyncBatchNorm does with a batch in training, without its check for a GPU."""

    def forward(self, x):
        self.num_batches_tracked.add_(1)
        group = dist.group.WORLD
        return SyncFunction.apply(
            x, self.weight, self.bias, self.running_mean, self.running_var, self.eps, self.momentum,
            group, dist.get_world_size(group),
        )  # fmt: skip


def synchronised(model: nn.Module) -> None:
    """Turns the BatchNorm1d layers of a wrapped model into synchronised ones: where they are so
    before, DistributedDataParallel refuses a CPU."""
    _install()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.__class__ = CpuSyncBatchNorm


def _stats(x, eps):
    return x.mean(0), (x.var(0, unbiased=False) + eps).rsqrt()


def _gather(x, means, invstds, running_mean, running_var, momentum, eps, counts):
    counts = counts.double().reshape(-1, 1)
    count = counts.sum()
    mean = (means * counts).sum(0) / count
    squares = (1 / invstds**2 - eps + means**2) * counts
    var = squares.sum(0) / count - mean**2
    if running_mean is not None:
        running_mean.mul_(1 - momentum).add_(momentum * mean)
        running_var.mul_(1 - momentum).add_(momentum * var * count / (count - 1))
    return mean, (var + eps).rsqrt()


def _elemt(x, weight, bias, mean, invstd, eps):
    return (x - mean) * invstd * weight + bias


def _backward_reduce(dy, x, mean, invstd, weight, _input, _weight, _bias):
    sum_dy = dy.sum(0)
    sum_dy_xmu = (dy * (x - mean)).sum(0)
    return sum_dy, sum_dy_xmu, sum_dy_xmu * invstd, sum_dy


def _backward_elemt(dy, x, mean, invstd, weight, sum_dy, sum_dy_xmu, counts):
    count = counts.sum()
    inner = dy - sum_dy / count - (x - mean) * invstd**2 * sum_dy_xmu / count
    return inner * invstd * weight


def _install() -> None:
    torch.batch_norm_stats = _stats
    torch.batch_norm_gather_stats_with_counts = _gather
    torch.batch_norm_elemt = _elemt
    torch.batch_norm_backward_reduce = _backward_reduce
    torch.batch_norm_backward_elemt = _backward_elemt
