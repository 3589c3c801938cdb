"""Mixed precision as GPUs run it: the list of functions that autocast keeps in single precision.

Steps are traced on the CPU, whose own autocast runs norms and softmax in bfloat16; graphs are made
for GPUs, where autocast runs them in float32 (the CUDA table of PyTorch's autocast reference).
"""

import contextlib

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

_SINGLE = {
    F.binary_cross_entropy_with_logits,
    F.cosine_embedding_loss,
    F.cosine_similarity,
    F.cross_entropy,
    F.group_norm,
    F.hinge_embedding_loss,
    F.huber_loss,
    F.interpolate,
    F.kl_div,
    F.l1_loss,
    F.layer_norm,
    F.log_softmax,
    F.margin_ranking_loss,
    F.mse_loss,
    F.multi_margin_loss,
    F.multilabel_margin_loss,
    F.nll_loss,
    F.normalize,
    F.poisson_nll_loss,
    F.smooth_l1_loss,
    F.soft_margin_loss,
    F.softmax,
    F.softmin,
    F.softplus,
    F.triplet_margin_loss,
}
for _name in (
    "softmax log_softmax exp expm1 log log10 log1p log2 pow reciprocal rsqrt cumsum cumprod norm "
    "prod sum acos asin cosh sinh tan erfinv dist cdist pdist renorm logsumexp"
).split():
    _SINGLE |= {
        getattr(owner, _name) for owner in (torch, torch.Tensor) if hasattr(owner, _name)
    }


class _GpuTable(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func not in _SINGLE:
            return func(*args, **kwargs)

        def widen(value):
            if isinstance(value, torch.Tensor) and value.dtype in (torch.bfloat16, torch.float16):
                return value.float()
            return value

        args, kwargs = tree_map(widen, (args, kwargs))
        with torch.autocast("cpu", enabled=False):
            return func(*args, **kwargs)


@contextlib.contextmanager
def autocast(dtype: torch.dtype | None):
    """torch.autocast with the table of GPUs, or nothing."""
    if dtype is None:
        yield
        return
    with torch.autocast("cpu", dtype=dtype), _GpuTable():
        yield
