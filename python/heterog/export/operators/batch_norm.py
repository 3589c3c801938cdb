"""Batch normalisation written out: with running statistics always, as pointwise operators; exact
training on request, as sums over the batch, so that slices normalise as one."""

import contextlib
from unittest import mock

import torch
from torch.nn.modules import batchnorm

from heterog.base.errors import ExportError

_aten = torch.ops.aten


def batch_norm_decompositions(exact: bool) -> dict:
    """Forward and backward: in `eval` mode pointwise operators on the running statistics, the same on
    any slice. In training mode, if `exact`, sums over the batch and pointwise operators; else one
    operator stays."""

    def forward(x, weight, bias, running_mean, running_var, training, momentum, eps):
        if not training:
            return _frozen_forward(x, weight, bias, running_mean, running_var, eps)
        if not exact:
            return NotImplemented
        return _forward(x, weight, bias, running_mean, running_var, momentum, eps)

    def without_running(x, weight, bias, training, momentum, eps):
        return forward(x, weight, bias, None, None, training, momentum, eps)

    def without_training(x, weight, bias, running_mean, running_var, momentum, eps):
        return forward(x, weight, bias, running_mean, running_var, False, momentum, eps)

    def backward(
        gradient, x, weight, running_mean, running_var, mean, deviation, training, eps, output_mask
    ):
        if not training:
            return _frozen_backward(
                gradient, x, weight, running_mean, running_var, eps, output_mask
            )
        if not exact:
            return NotImplemented
        return _backward(gradient, x, weight, mean, deviation, output_mask)

    return {
        _aten.native_batch_norm.default: forward,
        _aten._native_batch_norm_legit.default: forward,
        _aten._native_batch_norm_legit.no_stats: without_running,
        _aten._native_batch_norm_legit_no_training.default: without_training,
        _aten.native_batch_norm_backward.default: backward,
    }


def is_synchronised(model: torch.nn.Module) -> bool:
    """Whether a layer in training mode means the statistics of the whole batch, over all devices."""
    return any(
        isinstance(module, torch.nn.SyncBatchNorm) and module.training for module in model.modules()
    )


@contextlib.contextmanager
def in_one_process():
    """nn.SyncBatchNorm normalises what it is given: all of the batch, while a step is traced; by the
    graph the devices are synchronised, not by the group of processes that the program may have made."""
    with mock.patch.object(torch.distributed, "is_initialized", lambda: False):
        yield


@contextlib.contextmanager
def cumulative_averages(exact: bool):
    """Layers with momentum=None average over all steps: by 1 / n, for which PyTorch reads n, a tensor.
    Here it stays a tensor. Statistics of slices are put together only when the step is over, and cannot
    be computed with, so it takes those of the whole batch (`exact`)."""
    plain = batchnorm._BatchNorm.forward

    def forward(self, x):
        averages = self.training and self.track_running_stats and self.running_mean is not None
        if self.momentum is not None or not averages:
            return plain(self, x)
        if not exact:
            raise ExportError(
                f"{type(self).__name__}(momentum=None) averages its statistics over all steps, which "
                "takes those of the whole batch: give batch_norm='exact', or the layer a momentum"
            )
        self._check_input_dim(x)
        self.num_batches_tracked.add_(1)
        mean, variance = torch.zeros_like(self.running_mean), torch.zeros_like(self.running_var)
        result = torch.nn.functional.batch_norm(
            x, mean, variance, self.weight, self.bias, True, 1.0, self.eps
        )
        with torch.no_grad():
            for kept, now in ((self.running_mean, mean), (self.running_var, variance)):
                kept.add_((now - kept) / self.num_batches_tracked.to(kept.dtype))
        return result

    with mock.patch.object(batchnorm._BatchNorm, "forward", forward):
        yield


def check_exact(step) -> None:
    """Refuses a step in which a batch normalisation in training mode is left."""
    for op in step.ops:
        name = str(op.target)
        if "batch_norm" in name and any(argument is True for argument in op.args):
            raise ExportError(
                f"module {op.scope}: {name} cannot be made exact; use nn.BatchNorm or leave out "
                "batch_norm='exact'"
            )


def _layout(x: torch.Tensor) -> tuple[list[int], int, list[int]]:
    """The dimensions that are summed over, how many elements they hold, and the shape in which a
    statistic of each channel broadcasts."""
    channels = x.shape[1]
    dims = [dim for dim in range(x.dim()) if dim != 1]
    shape = [channels if dim == 1 else 1 for dim in range(x.dim())]
    return dims, x.numel() // channels, shape


def _wide(x: torch.Tensor) -> torch.Tensor:
    """In the precision that statistics have."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


# Of slices, a sum over the batch is a partial sum, and divided by the whole batch's count it stays
# one; where something that is not linear in it reads it, the slices add theirs up first.


def _forward(x, weight, bias, running_mean, running_var, momentum, eps):
    dims, count, shape = _layout(x)
    wide = _wide(x)
    mean = wide.sum(dims) / count
    # Squares of what is left without the mean: the difference of two large sums would lose digits.
    centred = wide - mean.view(shape)
    # They are never below 0. As the clamp is not linear, slices add up here, once for both readers.
    squares = (centred * centred).sum(dims).clamp_min(0)
    deviation = (squares / count + eps).rsqrt()
    result = centred * deviation.view(shape)
    if weight is not None:
        result = result * weight.view(shape)
    if bias is not None:
        result = result + bias.view(shape)
    if running_mean is not None:
        running_mean.lerp_(mean.to(running_mean.dtype), momentum)
    if running_var is not None:
        running_var.lerp_((squares / (count - 1)).to(running_var.dtype), momentum)
    return result.to(x.dtype), mean, deviation


def _backward(gradient, x, weight, mean, deviation, output_mask):
    dims, count, shape = _layout(x)
    wide = _wide(gradient)
    normal = (_wide(x) - mean.view(shape)) * deviation.view(shape)
    sum_bias = wide.sum(dims)
    sum_weight = (wide * normal).sum(dims)
    to_x = None
    if output_mask[0]:
        to_x = wide - (sum_bias / count).view(shape) - normal * (sum_weight / count).view(shape)
        scale = deviation if weight is None else deviation * weight
        to_x = (to_x * scale.view(shape)).to(x.dtype)
    return to_x, sum_weight if output_mask[1] else None, sum_bias if output_mask[2] else None


def _frozen_forward(x, weight, bias, running_mean, running_var, eps):
    _, _, shape = _layout(x)
    deviation = (running_var + eps).rsqrt()
    result = (_wide(x) - running_mean.view(shape)) * deviation.view(shape)
    if weight is not None:
        result = result * weight.view(shape)
    if bias is not None:
        result = result + bias.view(shape)
    nothing = running_mean.new_empty(0)  # statistics that backward does not read
    return result.to(x.dtype), nothing, nothing.clone()


def _frozen_backward(gradient, x, weight, running_mean, running_var, eps, output_mask):
    dims, _, shape = _layout(x)
    wide = _wide(gradient)
    deviation = (running_var + eps).rsqrt()
    to_x = to_weight = to_bias = None
    if output_mask[0]:
        scale = deviation if weight is None else deviation * weight
        to_x = (wide * scale.view(shape)).to(x.dtype)
    if output_mask[1]:
        normal = (_wide(x) - running_mean.view(shape)) * deviation.view(shape)
        to_weight = (wide * normal).sum(dims)
    if output_mask[2]:
        to_bias = wide.sum(dims)
    return to_x, to_weight, to_bias
