"""Weighs a model where its outputs leave it, for layers that talk between ranks in backward.

SyncBatchNorm adds up the ranks' gradients in its own backward pass and treats them as those of one
loss. What enters it must therefore be weighed already: the gradient of each output is multiplied by
ranks × share as it comes back into the model, and the ranks' gradients are averaged after it. A
term of the loss that does not pass through the model (a norm of its parameters) is the same on all
ranks and stays what it is.

A gradient that passes through two calls of the model on its way would be weighed twice, so inputs
that need gradients are refused.
"""

from collections.abc import Callable

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten


class _Weighed(torch.autograd.Function):
    """Its operand; the gradient is multiplied, and 0 even where it is NaN if its share is 0."""

    @staticmethod
    def forward(ctx, values, factor):
        ctx.factor = factor
        return values.view_as(values)

    @staticmethod
    def backward(ctx, gradient):
        factor = ctx.factor
        if isinstance(factor, torch.Tensor):
            return (gradient * factor).masked_fill(factor == 0, 0), None
        return (gradient * factor if factor else torch.zeros_like(gradient)), None


def weigh_outputs(model: torch.nn.Module, factor: Callable) -> Callable[[], bool]:
    """From now on, multiplies the gradient of every output of `model` by what `factor()` was when
    the output was made. What it returns says whether a pass of the model is under way: a backward
    pass that runs then does not come from the outputs."""
    inside = False

    def check(_model, inputs, named):
        nonlocal inside
        inside = True
        for value in tree_flatten((inputs, named))[0]:
            if isinstance(value, torch.Tensor) and value.requires_grad:
                raise ValueError(
                    "an input of the model needs a gradient, and the model has SyncBatchNorm: "
                    "weights of unequal shares are exact only if no gradient passes through the "
                    "model twice; detach the input"
                )

    def weigh(_model, _inputs, outputs):
        if not torch.is_grad_enabled():
            return outputs
        leaves, form = tree_flatten(outputs)
        for number, leaf in enumerate(leaves):
            if isinstance(leaf, torch.Tensor):
                if leaf.requires_grad:
                    leaves[number] = _Weighed.apply(leaf, factor())
            elif leaf is not None and not isinstance(leaf, (bool, int, float, str)):
                raise ValueError(
                    f"the model has SyncBatchNorm and returns a {type(leaf).__name__}, into which "
                    "weights of unequal shares cannot look: return tensors, lists, tuples or dicts"
                )
        return tree_unflatten(leaves, form)

    def leave(_model, _inputs, _outputs):
        nonlocal inside
        inside = False

    model.register_forward_pre_hook(check, with_kwargs=True)
    model.register_forward_hook(weigh)
    model.register_forward_hook(leave, always_call=True)
    return lambda: inside
