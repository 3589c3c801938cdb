"""What a step gives beside its loss: what loss_fn returns with it, and the norm of the gradients."""

from collections.abc import Mapping

import torch

from heterog.base.errors import ExportError

GRADIENT_NORM = "gradient_norm"
# Of their names in a graph. Two slashes: neither an argument nor optimizer state has a name like it.
_PREFIX = "step/outputs/"


def loss_and_outputs(returned) -> "tuple[object, dict[str, torch.Tensor]]":
    """What loss_fn returned: the loss, or the loss and a dict of tensors."""
    if not isinstance(returned, tuple):
        return returned, {}
    if len(returned) != 2 or not isinstance(returned[1], Mapping):
        raise ExportError(
            f"loss_fn returned a tuple of {len(returned)}; it returns the loss, or the loss and a dict "
            "of tensors by name"
        )
    loss, outputs = returned
    for name, value in outputs.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise ExportError(f"loss_fn: the output {name!r} has no name of letters, digits and _")
        if name == GRADIENT_NORM:
            raise ExportError(f"loss_fn: an output may not be called {name!r}; the setting of that name "
                              "gives the norm")  # fmt: skip
        if not isinstance(value, torch.Tensor):
            raise ExportError(
                f"loss_fn: the output {name!r} is a {type(value).__name__}; it is a tensor"
            )
    return loss, {name: value.detach() for name, value in outputs.items()}


def name_in_graph(name: str) -> str:
    return _PREFIX + name


def outputs_of(graph: dict) -> dict[str, int]:
    """Name → place of the tensor."""
    return {
        tensor["name"].removeprefix(_PREFIX): place
        for place, tensor in enumerate(graph["tensors"])
        if tensor["role"] == "output" and tensor["name"].startswith(_PREFIX)
    }
