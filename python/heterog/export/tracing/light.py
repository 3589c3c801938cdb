"""Builds a model without spending memory on its weights: large tensors stay on the meta device."""

import contextlib
import math

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_any, tree_map

# Tensors up to this many elements are made for real, so that small tables (position ids, running
# statistics, drop rates) keep their values and code that reads them while building works.
REAL_ELEMENTS = 1 << 16

_aten = torch.ops.aten
# Operators that make a tensor out of nothing, with its sizes as the first argument.
_FACTORIES = {
    _aten.empty,
    _aten.empty_strided,
    _aten.full,
    _aten.ones,
    _aten.rand,
    _aten.randn,
    _aten.zeros,
}


def _is_large_meta(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "meta"


class LightInit(TorchDispatchMode):
    """Sends every large new tensor, and all that is computed from it, to the meta device."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func.overloadpacket in _FACTORIES:
            if math.prod(args[0]) > REAL_ELEMENTS:
                kwargs["device"] = torch.device("meta")
        elif tree_any(_is_large_meta, (args, kwargs)):
            if "device" in kwargs:
                kwargs["device"] = torch.device("meta")

            def to_meta(value):
                # A zero-dimensional tensor mixes with any device; others must follow.
                if isinstance(value, torch.Tensor) and value.device.type != "meta" and value.dim():
                    return value.to("meta")
                return value

            args, kwargs = tree_map(to_meta, (args, kwargs))
        return func(*args, **kwargs)


@contextlib.contextmanager
def light_init():
    """Everything built inside keeps shapes, dtypes and small values; large values do not exist."""
    with LightInit():
        yield
