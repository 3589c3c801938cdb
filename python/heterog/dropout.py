"""Exports a step as if every dropout rate were 0, without changing the model for good."""

import contextlib

import torch

_aten = torch.ops.aten
# Attributes under which layers of common libraries keep the rate of dropping paths or layers.
RATES = ("dropout_prob", "drop_prob", "drop_path_prob", "drop_path", "stochastic_depth_prob", "layerdrop")


def identity_decompositions() -> dict:
    """Dropout that drops nothing, forward and backward: reaches rates that no module holds."""
    return {
        _aten.native_dropout.default: lambda x, p, train: (
            x.clone(),
            torch.ones_like(x, dtype=torch.bool),
        ),
        _aten.native_dropout_backward.default: lambda grad, mask, scale: grad.clone(),
    }


@contextlib.contextmanager
def without_dropout(model: torch.nn.Module):
    """Rates kept as numbers in modules are set to 0 meanwhile."""
    before = []
    for module in model.modules():
        names = list(RATES)
        if isinstance(module, torch.nn.RNNBase):
            names.append("dropout")
        drops = isinstance(module, torch.nn.modules.dropout._DropoutNd)
        if drops or type(module).__name__ in ("StochasticDepth", "DropPath"):
            names.append("p")
        for name in names:
            value = vars(module).get(name)
            if isinstance(value, float) and value != 0.0:
                before.append((module, name, value))
                setattr(module, name, 0.0)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
