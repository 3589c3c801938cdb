"""Queues that a step shifts by its batch: `cat([keys, queue[:-B]])` has a part of K - B rows, which no
graph has sizes for. Said by a roll of the whole queue, of which B rows are written over."""

from dataclasses import dataclass

import torch

from heterog.base.errors import ExportError
from heterog.export.graph.affine import Affine
from heterog.export.graph.ir import Op, Size, Step, Tensor

_aten = torch.ops.aten


@dataclass(frozen=True)
class _Rest:
    """A slice that leaves `rows` of a tensor out: its last ones, or its first."""

    of: Tensor
    dim: int
    size: int
    rows: Affine
    leaves_last: bool


def roll_queues(step: Step) -> None:
    rests: dict[Tensor, _Rest] = {}
    ops = []
    for op in step.ops:
        rest = _rest(op)
        if rest is not None:
            rests[op.outputs[0]] = rest
        ops += _rolled(op, rests) or [op]
    step.ops = ops


def check_sizes(step: Step) -> None:
    for op in step.ops:
        for tensor in op.outputs:
            for dim in tensor.shape if tensor is not None else ():
                if isinstance(dim, Affine) and dim.a < 0:
                    raise ExportError(
                        f"{'module ' + op.scope if op.scope else 'the model'}: {op.target} makes a size "
                        f"of {dim.c}-{-dim.a}B, which falls with the batch B; shift a queue by "
                        "torch.roll(queue, B, 0), and write its first B rows"
                    )


def _rest(op: Op) -> _Rest | None:
    if op.target is not _aten.slice.Tensor or (len(op.args) > 4 and op.args[4] != 1):
        return None
    of, dim, start, end = [*op.args[:4], *(0, None, None)[len(op.args[:4]) - 1 :]]
    dim %= len(of.shape)
    size = of.shape[dim]
    if not isinstance(size, int):
        return None
    start, end = _place(start or 0, size), _place(size if end is None else end, size)
    if start == 0 and isinstance(end, Affine) and end.a < 0:
        return _Rest(of, dim, size, Affine(-end.a, size - end.c), leaves_last=True)
    if end == size and isinstance(start, Affine) and start.a > 0:
        return _Rest(of, dim, size, start, leaves_last=False)
    return None


def _place(place, size: int):
    """From the front, as a number or an Affine."""
    if isinstance(place, Size):
        place = place.value
        behind = isinstance(place, Affine) and place.a < 0 and place.c <= 0
        return Affine(place.a, place.c + size) if behind else place
    return min(place + size if place < 0 else place, size)


def _rolled(op: Op, rests: dict[Tensor, _Rest]) -> list[Op] | None:
    """What stands for an operator that puts a rest beside new rows."""
    if op.target is _aten.cat.default and len(op.args[0]) == 2:
        first, last = op.args[0]
        dim = op.args[1] if len(op.args) > 1 else 0
        rest, rows = (rests.get(last), first), (rests.get(first), last)
        for found, new in (rest, rows):
            if found is None or found.leaves_last != (new is first):
                continue
            at = dim % len(found.of.shape)
            if at == found.dim and new.shape[at] == found.rows:
                return _written(op, found, new, [])
    if op.target is _aten.slice_scatter.default:
        base, part, dim, start, end = [*op.args, None, None, None][:5]
        found = rests.get(part)
        if found is None or (dim or 0) % len(base.shape) != found.dim or len(op.args) > 5:
            return None
        start = _place(start or 0, found.size)
        end = _place(found.size if end is None else end, found.size)
        kept = found.rows if found.leaves_last else 0
        if base.shape != found.of.shape or start != kept or (found.leaves_last and end != found.size):
            return None
        first, last = _rows(found)
        shape = list(base.shape)
        shape[found.dim] = found.rows
        own = Tensor(f"{op.name}/kept", "activation", base.dtype, shape, list(base.strides))
        args = [base, found.dim, first, last]
        taken = Op(own.name, _aten.slice.Tensor, args, {}, [own], op.phase, op.scope, op.sequence)
        return _written(op, found, own, [taken])
    return None


def _rows(rest: _Rest) -> tuple:
    """Where the rows lie that are left out and come new, after the roll."""
    if rest.leaves_last:
        return 0, Size(rest.rows)
    return Size(Affine(-rest.rows.a, rest.size - rest.rows.c)), rest.size


def _written(op: Op, rest: _Rest, rows: Tensor, before: list[Op]) -> list[Op]:
    sign = 1 if rest.leaves_last else -1
    shift = Size(Affine(sign * rest.rows.a, sign * rest.rows.c))
    result = op.outputs[0]
    whole = Tensor(
        f"{op.name}/rolled", "activation", result.dtype, list(result.shape), list(result.strides)
    )
    where = (op.phase, op.scope, op.sequence)
    args = [rest.of, [shift], [rest.dim]]
    roll = Op(whole.name, _aten.roll.default, args, {}, [whole], *where)
    args = [whole, rows, rest.dim, *_rows(rest)]
    return [*before, roll, Op(op.name, _aten.slice_scatter.default, args, {}, [result], *where)]
