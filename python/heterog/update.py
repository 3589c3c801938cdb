"""Adds the update phase to a merged step: clipping and the optimizer, parameter by parameter.

No size in it depends on the batch, and parameters of one shape are updated alike, so each distinct
form is traced once and written out for every parameter that has it.
"""

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from heterog.ir import Op, Step, Tensor
from heterog.merge import Merger
from heterog.optimizers import Update, apply_update, has_state


def add_update(step: Step, update: Update, clip_norm: float | None) -> None:
    """Appends the operators, the optimizer's state, `lr` and, where it counts, `step`."""
    parameters = {t.name: t for t in step.inputs if t.role == "parameter"}
    lr = _setting("lr")
    number = _setting("step")
    first_parameter = sum(t.role == "input" for t in step.inputs)
    step.inputs[first_parameter:first_parameter] = [lr, number] if update.counts else [lr]

    grads = dict(step.gradients)
    if clip_norm is not None:
        merger = Merger([_trace_clip(list(grads.values()), clip_norm)], [0], "clip/")
        grads = dict(zip(grads, merger.run(list(grads.values())), strict=True))
        _append(step, merger.ops, "")

    templates: dict = {}
    for index, group in enumerate(update.groups):
        names = [s for s in update.state_names if has_state(update, group.options, s)]
        for name in group.names:
            parameter = parameters[name]
            grad = grads[parameter]
            key = (index, _form(parameter), _form(grad))
            if key not in templates:
                templates[key] = _trace_update(update, group, names, parameter, grad)
            states = [_state(parameter, state) for state in names]
            step.inputs.extend(states)
            merger = Merger([templates[key]], [0], f"{name}/")
            outputs = merger.run([parameter, grad, lr, number, *states])
            step.next[parameter] = outputs[0]
            for state, output in zip(states, outputs[1:], strict=True):
                step.next[state] = output
            _append(step, merger.ops, name.rpartition(".")[0])


def _setting(name: str) -> Tensor:
    # In double precision: 1 - 0.999 in single precision is off in the fifth digit.
    # No argument of loss_fn has a slash in its name.
    return Tensor(f"optimizer/{name}", "input", torch.float64, [], [], setting=name)


def _state(parameter: Tensor, state: str) -> Tensor:
    """Optimizer state starts as zeros like its parameter."""
    name = f"{parameter.name}/{state}"
    shape, strides = list(parameter.shape), list(parameter.strides)
    return Tensor(name, "optimizer_state", parameter.dtype, shape, strides, of=parameter)


def _append(step: Step, ops: list[Op], scope: str) -> None:
    for op in ops:
        op.phase, op.scope, op.sequence = "update", scope, None
    step.ops.extend(ops)


def _form(tensor: Tensor) -> tuple:
    return tensor.dtype, tuple(tensor.shape), tuple(tensor.strides)


def _fake(mode: FakeTensorMode, tensor: Tensor) -> torch.Tensor:
    with mode:
        return torch.empty_strided(tensor.shape, tensor.strides, dtype=tensor.dtype, device="cpu")


def _trace_update(update: Update, group, names: list[str], parameter: Tensor, grad: Tensor):
    mode = FakeTensorMode()
    number = _setting("")

    def run(parameter, grad, lr, step_before, *values):
        parameter = parameter.clone()
        states = {name: value.clone() for name, value in zip(names, values, strict=True)}
        apply_update(update, group, parameter, grad, states, lr, step_before)
        return [parameter, *states.values()]

    arguments = [parameter, grad, number, number, *[parameter for _ in names]]
    with torch.no_grad():
        arguments = [_fake(mode, tensor) for tensor in arguments]
        recorded = _trace(run, arguments)

        def again(*values):
            return torch.fx.Interpreter(recorded).run(*values)

        return _trace(torch.func.functionalize(again, remove="mutations"), arguments)


def _trace_clip(grads: list[Tensor], limit: float):
    """Scales gradients so that their common 2-norm is at most `limit`.

    The numbers of torch.nn.utils.clip_grad_norm_, without in-place writes.
    """
    mode = FakeTensorMode()

    def run(*grads):
        norm = torch.linalg.vector_norm(
            torch.stack([torch.linalg.vector_norm(grad) for grad in grads])
        )
        factor = torch.clamp(limit / (norm + 1e-6), max=1.0)
        return [grad * factor.to(grad.dtype) for grad in grads]

    with torch.no_grad():
        return _trace(run, [_fake(mode, tensor) for tensor in grads])


def _trace(function, arguments: list):
    return make_fx(function, _disable_torch_fn_metadata_mode=True)(*arguments)
