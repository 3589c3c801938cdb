"""The exporter's own graph: tensors and operators with sizes that depend on the batch."""

from dataclasses import dataclass, field

import torch

from heterog.export.graph.affine import Affine, Reciprocal

# The buffer that holds what the loss is multiplied by before it is differentiated.
SCALE = "loss_scale/scale"

# A dimension or stride: a number or a·B + c.
Dim = int | Affine


@dataclass(eq=False)
class Tensor:
    """A value of the step. Compared by identity: two tensors are never the same by accident."""

    name: str
    role: str
    dtype: torch.dtype
    shape: list[Dim]
    strides: list[Dim]
    of: "Tensor | None" = None
    replaces: "Tensor | None" = None
    hints: dict = field(default_factory=dict)  # what the file says of its values, if anything
    setting: str | None = None  # "lr", "momentum" or "step": an input that the exporter made
    argument: str | None = None  # what loss_fn calls an input whose name was taken
    constant: torch.Tensor | None = None  # a buffer that the model made while it ran: its values


@dataclass(frozen=True)
class Size:
    """A shape-like integer that depends on the batch."""

    value: Affine


@dataclass(frozen=True)
class Scalar:
    """A number that enters arithmetic and depends on the batch."""

    value: Affine | Reciprocal


@dataclass(eq=False)
class Op:
    """One operator; `args` and `kwargs` hold tensors, numbers, Size, Scalar, lists of those."""

    name: str
    target: torch._ops.OpOverload
    args: list
    kwargs: dict
    outputs: list[Tensor | None]
    phase: str
    scope: str
    sequence: int | None
    forward: "Op | None" = None
    draw: int | None = None  # its number, if it draws random ones (heterog.export.operators.draws)


@dataclass
class Step:
    """A whole training step, operators in topological order."""

    inputs: list[Tensor]  # roles input, parameter, buffer, optimizer_state
    ops: list[Op]
    loss: Tensor
    gradients: dict[Tensor, Tensor]  # parameter → its gradient
    next: dict[Tensor, Tensor]  # parameter, buffer or optimizer state → its next value
    written: dict[Tensor, Tensor]  # parameter → what forward and backward leave of it
    outputs: dict[str, Tensor] = field(default_factory=dict)  # beside the loss, by name


def contiguous_strides(shape: list[Dim]) -> list[Dim]:
    """Row-major strides; None where a product would not be affine (two dims with the batch)."""
    strides: list = []
    running: Dim | None = 1
    for dim in reversed(shape):
        strides.append(running)
        running = multiply(running, dim)
    return strides[::-1]


def lies_row_by_row(tensor: Tensor) -> bool:
    """Whether its elements follow one another in memory, whatever dims of one element say."""
    usual = contiguous_strides(tensor.shape)
    return all(
        dim == 1 or stride == expected
        for dim, stride, expected in zip(tensor.shape, tensor.strides, usual, strict=True)
    )


def as_sizes(shape: list[Dim]) -> list:
    """A shape as an argument of an operator."""
    return [Size(dim) if isinstance(dim, Affine) else dim for dim in shape]


def multiply(x, y):
    """The product of two dims, None if it is not affine in the batch."""
    if x is None or y is None:
        return None
    if isinstance(x, Affine) and isinstance(y, Affine):
        return None
    if isinstance(y, Affine):
        x, y = y, x
    if isinstance(x, Affine):
        return Affine(x.a * y, x.c * y) if y else 0
    return x * y


def tensors_in(value):
    """Every tensor in an argument, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)


def replace_tensors(value, mapping: dict):
    """The argument with tensors replaced by what the mapping holds for them, to the end."""
    if isinstance(value, Tensor):
        while value in mapping:
            value = mapping[value]
        return value
    if isinstance(value, (list, tuple)):
        return [replace_tensors(item, mapping) for item in value]
    if isinstance(value, dict):
        return {key: replace_tensors(item, mapping) for key, item in value.items()}
    return value
