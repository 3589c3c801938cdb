"""What one graph of a step cannot say, found in the model, the optimizer or the step, and named."""

import torch

from heterog.errors import ExportError
from heterog.ir import Step, Tensor

_aten = torch.ops.aten

# Operators that change no value: what comes out of them is what went in.
_PASSING = {
    _aten.alias.default,
    _aten.clone.default,
    _aten.copy.default,
    _aten.detach.default,
    _aten.lift_fresh.default,
    _aten.lift_fresh_copy.default,
    _aten._to_copy.default,
}


def check_hooks(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Hooks on gradients, modules and tensors are traced where they run; these run elsewhere."""
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and parameter._post_accumulate_grad_hooks:
            raise ExportError(
                f"parameter {name} has a hook of register_post_accumulate_grad_hook, which runs "
                "outside the step that is exported; remove it, or change the gradient in "
                "register_hook"
            )
    for when in ("pre", "post"):
        if getattr(optimizer, f"_optimizer_step_{when}_hooks", None):
            raise ExportError(
                f"optimizer: it has a hook of register_step_{when}_hook, which is no part of the "
                "step that is exported; remove it"
            )


def check_written(step: Step) -> None:
    """The optimizer alone changes parameters: where forward writes one, which of its values the
    update starts from is not in the graph."""
    maker = {t: op for op in step.ops for t in op.outputs if t is not None}
    for parameter, left in step.written.items():
        while left in maker and maker[left].target in _PASSING:
            op = maker[left]
            left = op.args[1] if op.target is _aten.copy.default else op.args[0]
        if left is not parameter:
            raise written(parameter.name)


def written(parameter: str) -> ExportError:
    return ExportError(
        f"parameter {parameter} is written while the step runs (in place, under no_grad or through "
        ".data); only the optimizer may change a parameter"
    )


def check_buffers(step: Step) -> None:
    """A buffer keeps its form, whatever the step leaves in it."""
    for buffer, left in step.next.items():
        if buffer.role == "buffer" and (left.shape, left.dtype) != (buffer.shape, buffer.dtype):
            raise ExportError(
                f"buffer {buffer.name} is {_form(buffer)} before the step and {_form(left)} after "
                "it; a buffer keeps its shape and dtype"
            )


def _form(tensor: Tensor) -> str:
    shape = [dim if isinstance(dim, int) else dim.text() for dim in tensor.shape]
    return f"{tensor.dtype} of shape {shape}".replace("'", "")
