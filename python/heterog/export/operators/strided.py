"""as_strided and as_strided_scatter of a whole tensor, row by row, as views: autograd makes these of
an in-place squeeze. A view can run on slices of the batch; strides count elements of the whole."""

import torch

from heterog.export.graph.ir import Size, Step, Tensor, as_sizes, lies_row_by_row, multiply

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
        if all(lies_row_by_row(tensor) for tensor in whole):
            op.target = _aten.view.default
            op.args = [seen, as_sizes(op.outputs[0].shape)]
            op.kwargs = {}


def _elements(shape: list):
    count = 1
    for dim in shape:
        count = multiply(count, dim)
    return count
