"""Attention as a graph has it, run with weights that are dropped: no kernel of CPUs does that."""

import math

import torch
from torch.utils.weak import WeakTensorKeyDictionary

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default

FORWARD, BACKWARD = str(_forward), str(_backward)


def operators(keep) -> dict:
    """The two operators by name, as functions. `keep(weights, rate)`: what the weights [N, H, L, S]
    are multiplied by, a tensor or a number; the gradient gets what its forward operator got."""
    kept = WeakTensorKeyDictionary()  # by the sums that forward hands to backward

    def forward(query, key, value, rate=0.0, causal=False, *, attn_mask=None, scale=None):
        query, key, value = map(dense_rows, (query, key, value))
        if rate == 0:
            return _forward(query, key, value, 0.0, causal, attn_mask=attn_mask, scale=scale)
        scores = _scores(query, key, causal, attn_mask, scale)
        sums = torch.logsumexp(scores, -1)
        weights = _weights(scores, sums)
        kept[sums] = keep(weights, rate)
        # It lies in memory as the query does: views in the graph rely on that.
        out = torch.empty_like(query).copy_((weights * kept[sums]).to(value.dtype) @ value)
        return out, sums

    def backward(
        gradient, query, key, value, out, sums, rate, causal, *, attn_mask=None, scale=None
    ):
        gradient, query, key, value, out = map(dense_rows, (gradient, query, key, value, out))
        if rate == 0:
            return _backward(
                gradient, query, key, value, out, sums, 0.0, causal, attn_mask=attn_mask, scale=scale
            )
        weights = _weights(_scores(query, key, causal, attn_mask, scale), sums)
        factor = kept[sums]
        to_weights = (gradient @ value.transpose(-2, -1)) * factor
        inner = (to_weights * weights).sum(-1, keepdim=True)
        to_scores = (weights * (to_weights - inner) * _scale(query, scale)).to(query.dtype)
        to_value = (weights * factor).to(query.dtype).transpose(-2, -1) @ gradient
        to_key = to_scores.transpose(-2, -1) @ query
        return _by_place(to_scores @ key), _by_place(to_key), _by_place(to_value)

    return {FORWARD: forward, BACKWARD: backward}


def dense_rows(x: torch.Tensor) -> torch.Tensor:
    """The kernel takes for granted that the numbers of a row lie side by side."""
    return x if x.size(-1) <= 1 or x.stride(-1) == 1 else x.contiguous()


def _by_place(x: torch.Tensor) -> torch.Tensor:
    """With the heads of a place side by side in memory, as the kernel's gradients are."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def drawn(weights: torch.Tensor, rate: float):
    """Dropout by PyTorch's generator."""
    return torch.dropout(torch.ones_like(weights), rate, train=True)


def all_kept(_weights: torch.Tensor, rate: float):
    """Nothing dropped, scaled all the same."""
    return 1 / (1 - rate) if rate < 1 else 0.0


def _scale(query, scale) -> float:
    return 1 / math.sqrt(query.size(-1)) if scale is None else scale


def _scores(query, key, causal, mask, scale) -> torch.Tensor:
    scores = (query @ key.transpose(-2, -1)).to(_sums_dtype(query)) * _scale(query, scale)
    if mask is not None:
        scores = scores + mask
    if causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~seen, float("-inf"))
    return scores


def _sums_dtype(query) -> torch.dtype:
    return torch.float64 if query.dtype == torch.float64 else torch.float32


def _weights(scores, sums) -> torch.Tensor:
    """exp(scores - sums), 0 for a query that may look at nothing."""
    return torch.exp(scores - sums.masked_fill(sums.isinf(), 0).unsqueeze(-1))
