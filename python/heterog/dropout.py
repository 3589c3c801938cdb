"""Exports a step as if every dropout rate were 0, without changing the model for good."""

import contextlib

import torch
from torch.overrides import TorchFunctionMode

from heterog.errors import ExportError
from heterog.ir import Step

# Functions that drop elements, with the places of the rate and of the switch that turns it on.
_DROPS = {
    torch.dropout,
    torch.dropout_,
    torch.feature_dropout,
    torch.feature_dropout_,
    torch.alpha_dropout,
    torch.alpha_dropout_,
    torch.feature_alpha_dropout,
    torch.feature_alpha_dropout_,
    torch._VF.dropout,
}
_RATES = ("drop_prob", "drop_path_prob", "drop_path", "stochastic_depth_prob", "layerdrop")


class _NoDropout(TorchFunctionMode):
    """Returns the input of every dropout function, and attention without dropped weights."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func in _DROPS:
            return args[0] if args else kwargs["input"]
        if func is torch.nn.functional.scaled_dot_product_attention:
            if "dropout_p" in kwargs:
                kwargs["dropout_p"] = 0.0
            elif len(args) > 4:
                args = (*args[:4], 0.0, *args[5:])
        return func(*args, **kwargs)


@contextlib.contextmanager
def without_dropout(model: torch.nn.Module):
    """Rates kept as numbers in modules (recurrent layers, dropped paths) are set to 0 meanwhile."""
    before = []
    for module in model.modules():
        names = list(_RATES)
        if isinstance(module, torch.nn.RNNBase):
            names.append("dropout")
        if type(module).__name__ in ("StochasticDepth", "DropPath"):
            names.append("p")
        for name in names:
            value = vars(module).get(name)
            if isinstance(value, float) and value != 0.0:
                before.append((module, name, value))
                setattr(module, name, 0.0)
    try:
        with _NoDropout():
            yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def check_nothing_random(step: Step) -> None:
    for op in step.ops:
        if torch.Tag.nondeterministic_seeded in op.target.tags:
            where = f"module {op.scope}" if op.scope else "the model"
            raise ExportError(
                f"{where}: {op.target} still draws random numbers with dropout off; set the rate "
                "of that module to 0 yourself, or export with dropout"
            )
