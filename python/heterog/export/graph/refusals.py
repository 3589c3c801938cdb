"""What one graph of a step cannot say, found in the model, the optimizer or the step, and named."""

import torch

from heterog.base.errors import ExportError
from heterog.export.graph.ir import Step, Tensor

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


def check_tensors(model: torch.nn.Module) -> None:
    """Parameters and buffers are plain tensors: a subclass computes by code of its own, on what may be
    packed values."""
    for kind, tensors in (("parameter", model.named_parameters()), ("buffer", model.named_buffers())):
        for name, value in tensors:
            found = type(value)
            if isinstance(value, torch._subclasses.FakeTensor) or not _computes_itself(found):
                continue
            if hasattr(found, "_mirror"):  # a runner's, whose values are away (mirror.py)
                continue
            package = found.__module__.partition(".")[0]
            named = f"{kind} {name} is a {found.__name__}" + (
                f" (of {package})" if package not in ("torch", "__main__") else ""
            )
            if found.__name__ == "DTensor":
                raise ExportError(
                    f"{named}, cut up among ranks; export the model as it is before fully_shard or "
                    "tensor parallelism"
                )
            if package in _QUANTIZERS or any(word in found.__name__.lower() for word in _PACKED):
                raise ExportError(
                    f"{named}, which holds its values packed in fewer bits, and no operator of a graph "
                    "reads them; a frozen base of 4 bits becomes one by heterog.with_4bit_base(model), any other is "
                    "loaded without quantization (in bfloat16)"
                )
            raise ExportError(
                f"{named}, a subclass of tensors that computes by code of its own; give plain tensors"
            )


_QUANTIZERS = {"bitsandbytes", "torchao", "hqq", "optimum", "quanto", "auto_gptq", "awq"}
_PACKED = ("4bit", "8bit", "nf4", "int8", "int4", "quantized")


def _computes_itself(kind: type) -> bool:
    if kind.__module__.partition(".")[0] in _QUANTIZERS:
        return True
    if issubclass(kind, torch.nn.parameter.UninitializedTensorMixin):  # refused where it stops
        return False
    plain = [_hooks(known) for known in (torch.Tensor, torch.nn.Parameter)]
    return not all(hook in known for hook, known in zip(_hooks(kind), zip(*plain), strict=True))


def _hooks(kind: type) -> tuple:
    """Its own code that PyTorch calls in place of an operator."""
    hooks = (kind.__torch_function__, kind.__torch_dispatch__)
    return tuple(getattr(hook, "__func__", hook) for hook in hooks)


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
