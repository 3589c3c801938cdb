"""Softmax of float16 that gives float32, and its gradient, as one operator each.

Autocast on GPUs runs softmax and log_softmax (of cross_entropy too) so where they are given float16:
the wider copy of what they read is never written. PyTorch has kernels of it for GPUs alone.
"""

import torch

from heterog.export.graph.ir import Op, Step, Tensor, tensors_in

_aten = torch.ops.aten
_FORWARD = (_aten._softmax.default, _aten._log_softmax.default)
_BACKWARD = (_aten._softmax_backward_data.default, _aten._log_softmax_backward_data.default)
_HALF_TO_FLOAT, _INPUT_DTYPE = 2, 3  # of their arguments


def join_casts(step: Step) -> None:
    """Lets them read and write float16 where a cast stands before them or behind them, for them
    alone."""
    maker = {tensor: op for op in step.ops for tensor in op.outputs}
    readers: dict[Tensor, list[Op]] = {}
    for op in step.ops:
        for tensor in tensors_in((op.args, op.kwargs)):
            readers.setdefault(tensor, []).append(op)
    kept = {step.loss, *step.outputs.values(), *step.gradients.values(), *step.next.values()}
    gone: list[Op] = []
    for op in step.ops:
        if op.target in _FORWARD and not op.args[_HALF_TO_FLOAT]:
            wide = op.args[0]
            cast = maker.get(wide)
            if _is_cast(cast, torch.float16, torch.float32) and readers[wide] == [op]:
                op.args = [cast.args[0], op.args[1], True]
                gone.append(cast)
        elif op.target in _BACKWARD and op.args[_INPUT_DTYPE] == torch.float32:
            (wide,) = op.outputs
            (cast,) = readers.get(wide, []) if len(readers.get(wide, [])) == 1 else (None,)
            if wide not in kept and _is_cast(cast, torch.float32, torch.float16):
                op.args = [*op.args[:_INPUT_DTYPE], torch.float16]
                op.outputs = cast.outputs
                gone.append(cast)
    step.ops = [op for op in step.ops if not any(op is cast for cast in gone)]


def _is_cast(op: Op | None, before: torch.dtype, after: torch.dtype) -> bool:
    if op is None or op.target is not _aten._to_copy.default:
        return False
    return op.args[0].dtype == before and op.outputs[0].dtype == after


def _forward(operator):
    def call(x, dim, half_to_float):
        wide = half_to_float and x.dtype == torch.float16
        return operator(x.float() if wide else x, dim, False)

    return call


def _backward(operator):
    def call(grad, output, dim, input_dtype):
        return operator(grad, output, dim, grad.dtype).to(input_dtype)

    return call


def operators() -> dict:
    """The operators by name, for any device."""
    named = {operator: _forward(operator) for operator in _FORWARD}
    named |= {operator: _backward(operator) for operator in _BACKWARD}
    return {str(operator): call for operator, call in named.items()}
