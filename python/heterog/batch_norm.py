"""Exact batch normalisation: written out as sums over the batch, so that slices normalise as one."""

import torch

from heterog.errors import ExportError

_aten = torch.ops.aten


def exact_decompositions() -> dict:
    """Training-mode batch normalisation, forward and backward, in sums over the batch and pointwise
    operators. With the running statistics in place of the batch's it works on any slice as it is,
    and stays."""
    return {
        _aten.native_batch_norm.default: _forward,
        _aten._native_batch_norm_legit.default: _forward,
        _aten._native_batch_norm_legit.no_stats: _forward_without_running,
        _aten.native_batch_norm_backward.default: _backward,
    }


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


def _forward(x, weight, bias, running_mean, running_var, training, momentum, eps):
    if not training:
        return NotImplemented
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


def _forward_without_running(x, weight, bias, training, momentum, eps):
    return _forward(x, weight, bias, None, None, training, momentum, eps)


def _backward(
    gradient, x, weight, running_mean, running_var, mean, deviation, training, eps, output_mask
):
    if not training:
        return NotImplemented
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
