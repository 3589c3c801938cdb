"""Operators that make a tensor of one number and take only its form from an operand: they are
given the sizes instead, so that they wait for nothing, and nothing is kept for them."""

import torch

from heterog.export.graph.ir import Op, Step, as_sizes, lies_row_by_row

_aten = torch.ops.aten

_NUMBERS = {
    _aten.zeros_like.default: 0,
    _aten.new_zeros.default: 0,
    _aten.ones_like.default: 1,
    _aten.new_ones.default: 1,
}
_GIVEN = {_aten.full_like.default: 1, _aten.new_full.default: 2}  # place of the number


def say_sizes(step: Step) -> None:
    """zeros_like, new_full and the like become full, where the result lies in memory row by row.
    Those of a gradient stay: whoever reads them waits for it too, and a plan would else make them,
    and keep them, long before."""
    backward = {t for op in step.ops if op.phase == "backward" for t in op.outputs}
    for op in step.ops:
        number = _number(op)
        if number is None or (op.phase == "backward" and op.args[0] in backward):
            continue
        made = op.outputs[0]
        if not lies_row_by_row(made):
            continue
        op.target = _aten.full.default
        op.args = [as_sizes(made.shape), number]
        op.kwargs = {"dtype": made.dtype, "device": torch.device("cpu")}


def _number(op: Op):
    if op.target in _NUMBERS:
        return _NUMBERS[op.target]
    place = _GIVEN.get(op.target)
    return op.args[place] if place is not None and len(op.args) > place else None


def drop_empty_parts(step: Step) -> None:
    """cat leaves out tensors of shape [0], whatever it joins: what caches are before they hold
    anything."""
    for op in step.ops:
        if op.target is _aten.cat.default:
            parts = [part for part in op.args[0] if part.shape != [0]]
            if parts:
                op.args = [parts, *op.args[1:]]
