"""Tensors that a model makes of Python numbers while it runs: parts of the graph, by their values."""

from dataclasses import dataclass

import torch

from heterog.export.graph.affine import Affine, Reciprocal, fit_scalar, fit_size
from heterog.export.graph.hints import list_values

# A table of more bytes than this is written into a file of its own, beside the graph's.
MOST_BYTES_IN_GRAPH = 64 << 10


@dataclass(frozen=True)
class Fill:
    """One number everywhere; sizes and number may depend on the batch."""

    shape: list[int | Affine]
    value: bool | int | float | Affine | Reciprocal


def lift_constants(module: torch.fx.GraphModule) -> list[torch.Tensor]:
    """Makes placeholders, the last ones, of what a trace keeps as attributes; returns their values.
    A second trace then hands them on, as it does inputs."""
    graph = module.graph
    nodes = [node for node in graph.nodes if node.op == "get_attr" and node.users]
    last = next((n for n in reversed(graph.nodes) if n.op == "placeholder"), None)
    placeholders: dict[int, torch.fx.Node] = {}
    values = []
    for node in nodes:
        value = getattr(module, node.target)
        if id(value) not in placeholders:
            with graph.inserting_after(last) if last else graph.inserting_before():
                last = graph.placeholder(f"constant_{len(values)}")
            last.meta = {"val": value, "custom": next(iter(node.users)).meta.get("custom")}
            placeholders[id(value)] = last
            values.append(value)
        node.replace_all_uses_with(placeholders[id(value)])
    for node in reversed([node for node in graph.nodes if node.op == "get_attr"]):
        graph.erase_node(node)
    module.recompile()
    return values


def has_values(value: torch.Tensor) -> bool:
    """Whether a constant's numbers are known: those of a model that was built without its weights
    are not."""
    return not isinstance(value, torch._subclasses.FakeTensor) and value.device.type != "meta"


def fit_constant(batches: tuple, values: list[torch.Tensor]) -> Fill | torch.Tensor | None:
    """What a constant is, from its values at the traced batches: a fill, or a table that is the
    same at all of them. None: neither."""
    first = values[0]
    if all(value.dtype == first.dtype and value.dim() == first.dim() for value in values):
        shape = [fit_size(batches, list(column)) for column in zip(*[v.shape for v in values])]
        numbers = [_only_number(value) for value in values]
        if None not in shape and None not in numbers:
            number = _fit_number(batches, numbers)
            if number is not None:
                return Fill(shape, number)
    if all(same_values(value, first) for value in values[1:]):
        return first.detach().contiguous()
    return None


def constant_values(value: torch.Tensor) -> dict:
    """What the file says of a table: every value, or that they are in the file beside it."""
    if value.numel() * value.element_size() > MOST_BYTES_IN_GRAPH:
        return {"values": {"file": "constants"}}
    return list_values(value)


def _only_number(value: torch.Tensor):
    """The number that is everywhere in a tensor; 0 of an empty one."""
    if value.is_complex():
        return None
    flat = value.detach().flatten()
    if flat.numel() == 0:
        return 0
    # A NaN is not equal to itself.
    alike = (flat == flat[0]) | ((flat != flat) & (flat[0] != flat[0]))
    return flat[0].item() if bool(alike.all()) else None


def _fit_number(batches: tuple, numbers: list):
    first = numbers[0]
    if all(repr(number) == repr(first) for number in numbers):
        return first
    if isinstance(first, bool):
        return None
    return fit_scalar(batches, numbers)


def same_values(one: torch.Tensor, other: torch.Tensor) -> bool:
    if not (has_values(one) and has_values(other)):
        return one is other
    return (
        one.dtype == other.dtype
        and one.shape == other.shape
        and torch.equal(torch.nan_to_num(one), torch.nan_to_num(other))
        and torch.equal(one != one, other != other)
    )
