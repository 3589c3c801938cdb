"""Parameters in float32 that forward and backward compute with in half precision.

The optimizer updates the float32 ones, the masters; each step begins with their copies. This is what
MixedPrecisionPolicy of PyTorch's fully_shard means by param_dtype, reduce_dtype and
cast_forward_inputs. Buffers stay as they are.
"""

import contextlib
from dataclasses import dataclass

import torch
from torch.utils._pytree import tree_map

from heterog.base.errors import ExportError

_NARROW = {"bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Masters:
    compute: torch.dtype  # of the copies, and of the floating tensors that the model is called with
    reduce: torch.dtype  # of gradients, as they are summed over devices


def read_masters(param_dtype: str | None, reduce_dtype: str | None) -> Masters | None:
    """None: parameters are computed with as they are."""
    if param_dtype is None:
        if reduce_dtype is not None:
            raise ExportError("reduce_dtype is of use with param_dtype alone; give both, or neither")
        return None
    if param_dtype not in _NARROW:
        raise ExportError(
            f"param_dtype: {param_dtype!r} is not known; use None, 'bfloat16' or 'float16'"
        )
    if reduce_dtype not in (None, "float32", param_dtype):
        raise ExportError(
            f"reduce_dtype: {reduce_dtype!r} is neither 'float32' nor the param_dtype, "
            f"{param_dtype!r}"
        )
    narrow = _NARROW[param_dtype]
    return Masters(narrow, narrow if reduce_dtype == param_dtype else torch.float32)


def is_master(tensor: torch.Tensor) -> bool:
    return tensor.dtype == torch.float32


@contextlib.contextmanager
def inputs_narrowed(model: torch.nn.Module, masters: Masters | None):
    """While it lasts, the model is called with floating tensors in the precision of its copies."""
    if masters is None:
        yield
        return

    def narrow(value):
        floats = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.to(masters.compute) if floats else value

    def before(_module, args, kwargs):
        return tree_map(narrow, (args, kwargs))

    handle = model.register_forward_pre_hook(before, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()
