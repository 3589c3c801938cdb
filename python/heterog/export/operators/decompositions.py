"""What the exporter replaces by plainer operators: hidden divisors and device-only fused kernels."""

import contextlib
from unittest import mock

import torch
from torch._decomp import decompositions, get_decompositions

from heterog.export.operators import draws

_aten = torch.ops.aten

# Losses that divide by their own number of elements inside: a slice of the batch would divide by
# the wrong number, so the divisor must stand in the graph.
_HIDDEN_DIVISORS = [
    _aten.mse_loss,
    _aten.mse_loss_backward,
    _aten.smooth_l1_loss,
    _aten.smooth_l1_loss_backward,
    _aten.huber_loss_backward,
    _aten.binary_cross_entropy,
    _aten.binary_cross_entropy_backward,
    _aten.binary_cross_entropy_with_logits,
    _aten.soft_margin_loss,
    _aten.soft_margin_loss_backward,
]


def _huber_loss(input, target, reduction=1, delta=1.0):
    distance = (input - target).abs()
    loss = torch.where(
        distance <= delta, 0.5 * distance * distance, delta * (distance - 0.5 * delta)
    )
    if reduction == 1:
        return loss.mean()
    return loss.sum() if reduction == 2 else loss


def _shown_divisor(operator):
    """A mean over the labels that are not ignored, as a sum and a quotient: how many labels a slice
    of the batch ignores is known only when it runs, so the divisor must stand in the graph. It is
    computed from labels and weights alone: the backward pass, which divides by it too, then waits
    for no slice's forward pass."""

    def decomposed(input, target, weight, reduction, ignore_index):
        if reduction != 1:
            return NotImplemented
        total, _ = operator(input, target, weight, 2, ignore_index)
        counted = target != ignore_index
        if weight is None:
            weights = counted.to(input.dtype)
        else:
            weights = torch.where(counted, weight[torch.where(counted, target, 0)], 0)
        divisor = weights.sum()
        return total / divisor, divisor

    return decomposed


def _recurrent_layers(
    input, hidden, params, has_biases, num_layers, dropout, train, bidirectional, batch_first, layer_fn
):
    """torch's `_rnn_helper`, with the dropout between layers that it leaves out (2.11)."""
    x = input.transpose(0, 1) if batch_first else input
    left = []
    for layer in range(num_layers):
        weights, state, reverse_weights, reverse_state = decompositions.params_hiddens(
            params, hidden, layer, bidirectional
        )
        out, last = layer_fn(x, state, weights, has_biases)
        left.append(last)
        if bidirectional:
            back, last = layer_fn(x, reverse_state, reverse_weights, has_biases, reverse=True)
            left.append(last)
            out = torch.cat([out, back], out.dim() - 1)
        x = out
        if dropout != 0 and train and layer < num_layers - 1:
            x = torch.dropout(x, dropout, train=True)
    return x.transpose(0, 1) if batch_first else x, left


@contextlib.contextmanager
def recurrent_dropout():
    """Recurrent layers are written out with their dropout."""
    with mock.patch.object(decompositions, "_rnn_helper", _recurrent_layers):
        yield


def decomposition_table() -> dict:
    """Operator overload → the function that says the same in plainer operators."""
    table = dict(get_decompositions(_HIDDEN_DIVISORS)) | draws.decompositions()
    table[_aten.huber_loss.default] = _huber_loss
    for operator in (_aten.nll_loss_forward.default, _aten.nll_loss2d_forward.default):
        table[operator] = _shown_divisor(operator)
    return table
