"""Scaled dot-product attention as one operator, forward and backward, in the traced step.

Which kernel computes it is left to whoever runs the step: the operator in the graph is the fused
one whose results are the same on every kind of device.
"""

import contextlib
import functools
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

from heterog.export.operators.attention_reference import dense_rows

_in_pytorch = torch.nn.functional.scaled_dot_product_attention
_one_operator = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


def _attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False,
    *, drops=True
):  # fmt: skip
    dropout_p = float(dropout_p) if drops else 0.0
    if not _can_be_one(query, key, value, attn_mask, is_causal, enable_gqa):
        return _in_pytorch(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    if torch.is_autocast_enabled("cpu"):
        narrow = torch.get_autocast_dtype("cpu")
        query, key, value = query.to(narrow), key.to(narrow), value.to(narrow)
    if enable_gqa and key.size(1) != query.size(1):
        groups = query.size(1) // key.size(1)
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    if attn_mask is not None:
        attn_mask = _added(attn_mask, query.dtype)
    # Kernels want the numbers of a row side by side; PyTorch would write attention out here.
    query, key, value = map(dense_rows, (query, key, value))
    return _one_operator(
        query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale
    )[0]


def _can_be_one(query, key, value, mask, is_causal, enable_gqa) -> bool:
    tensors = (query, key, value)
    if not all(isinstance(t, torch.Tensor) and t.dim() == 4 and t.numel() for t in tensors):
        return False
    if not query.is_floating_point() or any(t.dtype != query.dtype for t in tensors):
        return False
    if any(t.size(0) != query.size(0) or t.size(3) != query.size(3) for t in tensors):
        return False
    if key.shape != value.shape or (key.size(1) != query.size(1) and not enable_gqa):
        return False
    if query.size(1) % key.size(1):
        return False
    # A learnt bias needs a gradient, which the fused operator does not give.
    return mask is None or (mask.dim() in (2, 4) and not mask.requires_grad and not is_causal)


def _added(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What is added to the scores: 0 where a mask of truth values is true, else -inf."""
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask.logical_not(), float("-inf"))


class _Direct(TorchFunctionMode):
    """Reaches those who hold PyTorch's function by a name of their own."""

    def __init__(self, instead):
        super().__init__()
        self._instead = instead

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is _in_pytorch:
            return self._instead(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def attention_as(form: str, drops: bool):
    """"one": scaled_dot_product_attention is traced as one operator where it can be; "math": it is
    written out in products, softmax and dropout. `drops`: whether its dropout counts."""
    if form == "math":
        yield
        return
    instead = functools.partial(_attention, drops=drops)
    functional = torch.nn.functional
    with (
        mock.patch.object(functional, "scaled_dot_product_attention", instead),
        _Direct(instead),
    ):
        yield
