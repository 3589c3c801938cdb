"""as_strided and as_strided_scatter of a whole tensor, row by row, as views: autograd makes these of
an in-place squeeze. A view can run on slices of the batch; strides count elements of the whole."""

import torch

from heterog.export.graph.affine import Affine
from heterog.export.graph.ir import Op, Size, Step, Tensor, contiguous_strides, multiply

_aten = torch.ops.aten


def view_strided(step: Step) -> None:
    """Writes a view in place of each that reads, or replaces, every element in its place."""
    for op in step.ops:
        if op.target is _aten.as_strided.default:
            base, sizes, strides, *offset = op.args
            seen = base
        elif op.target is _aten.as_strided_scatter.default:
            base, seen, sizes, strides, *offset = op.args
        else:
            continue
        shape = [size.value if isinstance(size, Size) else size for size in sizes]
        whole = [base, seen, Tensor("", "", base.dtype, shape, strides), op.outputs[0]]
        elements = _elements(base.shape)
        if any(offset) or elements is None or _elements(shape) != elements:
            continue
        if all(_row_by_row(tensor) for tensor in whole):
            _write_view(op, seen)


def _elements(shape: list):
    count = 1
    for dim in shape:
        count = multiply(count, dim)
    return count


def _row_by_row(tensor: Tensor) -> bool:
    usual = contiguous_strides(tensor.shape)
    return all(
        dim == 1 or stride == expected
        for dim, stride, expected in zip(tensor.shape, tensor.strides, usual, strict=True)
    )


def _write_view(op: Op, seen: Tensor) -> None:
    shape = op.outputs[0].shape
    op.target = _aten.view.default
    op.args = [seen, [Size(dim) if isinstance(dim, Affine) else dim for dim in shape]]
    op.kwargs = {}
