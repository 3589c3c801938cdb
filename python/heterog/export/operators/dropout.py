"""Exports a step as if every dropout rate were 0, without changing the model for good."""

import contextlib

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

_aten = torch.ops.aten
# Attributes under which layers of common libraries keep the rate of dropping paths or layers.
RATES = ("dropout_prob", "drop_prob", "drop_path_prob", "drop_path", "stochastic_depth_prob", "layerdrop")


# Functions of dropout that become no operator of their own.
_FUNCTIONS = {
    F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout,
    torch.alpha_dropout, torch.alpha_dropout_, torch.feature_dropout, torch.feature_dropout_,
    torch.feature_alpha_dropout, torch.feature_alpha_dropout_,
}  # fmt: skip


class _NothingDropped(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in _FUNCTIONS:
            return args[0] if args else kwargs["input"]
        return func(*args, **kwargs)


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
    """Rates kept as numbers in modules are set to 0 meanwhile; functions give their operand back."""
    before, seen = [], set()

    def clear(holder, names) -> None:
        for name in names:
            value = vars(holder).get(name)
            if isinstance(value, float) and value != 0.0:
                before.append((holder, name, value))
                setattr(holder, name, 0.0)

    for module in model.modules():
        # transformers' encoders of sound read their rate where the model's settings are.
        config = vars(module).get("config")
        if hasattr(config, "__dict__") and id(config) not in seen:
            seen.add(id(config))
            clear(config, RATES)
        names = list(RATES)
        if isinstance(module, torch.nn.RNNBase):
            names.append("dropout")
        drops = isinstance(module, torch.nn.modules.dropout._DropoutNd)
        if drops or type(module).__name__ in ("StochasticDepth", "DropPath"):
            names.append("p")
        clear(module, names)
    try:
        with _NothingDropped():
            yield
    finally:
        for holder, name, value in before:
            setattr(holder, name, value)
