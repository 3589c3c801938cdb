"""Adds the update phase to a merged step: clipping and the optimizer, parameter by parameter.

No size in it depends on the batch, and parameters of one shape are updated alike, so each distinct
form is traced once and written out for every parameter that has it.
"""

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from heterog.export.graph.hints import buffer_values
from heterog.export.graph.ir import Op, Step, Tensor
from heterog.export.graph.outputs import GRADIENT_NORM
from heterog.export.graph.record import record
from heterog.export.loss_scaling import LossScaling, masked, unscale
from heterog.export.optimizer.form import Reader
from heterog.export.optimizer.fused_update import forget_gradients, fused_module
from heterog.export.optimizer.settings import Update
from heterog.export.optimizer.state_form import Kept
from heterog.export.tracing.merge import Merger


def add_update(
    step: Step,
    update: Update,
    clip_norm: float | None,
    scaling: LossScaling | None = None,
    fused: bool = True,
    norm: bool = False,
) -> None:
    """Appends the operators, the optimizer's state, `lr` and, where they count, `momentum` and
    `step`. `scaling`: how the scale moves of a loss that forward has scaled. `fused`: one operator
    for each parameter where PyTorch has a kernel of the optimizer. `norm`: that of all gradients, as they
    are before they are clipped, becomes an output."""
    parameters = {t.name: t for t in step.inputs if t.role == "parameter"}
    lr, momentum, number = _setting("lr"), _setting("momentum"), _setting("step")
    first_parameter = sum(t.role == "input" for t in step.inputs)

    grads, counted, scaled = _widened(step), number, None
    if scaling is not None:
        scaled = unscale(step, grads, number, scaling)
        grads, counted = scaled.grads, scaled.number
    if clip_norm is not None or norm:
        merger = Merger([_trace_clip(list(grads.values()), clip_norm)], [0], "clip/")
        whole, *clipped = merger.run(list(grads.values()))
        _append(step, merger.ops, "")
        if clip_norm is not None:
            grads = dict(zip(grads, clipped, strict=True))
        if norm:
            step.outputs[GRADIENT_NORM] = whole

    forms: dict = {}
    for index, group in enumerate(update.groups):
        reader = Reader(update, group)
        for name in group.names:
            parameter = parameters[name]
            grad = grads[parameter]
            key = (index, _form(parameter), _form(grad))
            if key not in forms:
                form = reader.form(*key[1:])
                kernel = None
                if fused:
                    kernel = fused_module(update, group, *key[1:], form.state, scaled is not None)
                forms[key] = form, kernel
            form, kernel = forms[key]
            update.forms[name] = form.state
            states = [_state(parameter, kept) for kept in form.state.kept]
            step.inputs.extend(states)
            merger = Merger([form.module if kernel is None else kernel], [0], f"{name}/")
            given = [parameter, grad, lr, momentum, counted, *states]
            if kernel is not None and scaled is not None:
                given.append(scaled.flag)
            outputs = merger.run(given)
            if kernel is not None:
                forget_gradients(merger.ops)
            _append(step, merger.ops, name.rpartition(".")[0])
            for old, new in zip([parameter, *states], outputs, strict=True):
                keeps = scaled is not None and kernel is None
                step.next[old] = masked(step, scaled, old, new) if keeps else new
    settings = [lr]
    if update.momentum is not None:
        settings.append(momentum)
    if any(form.reads_step() for form, _ in forms.values()):
        settings.append(number)
    step.inputs[first_parameter:first_parameter] = settings


def _widened(step: Step) -> dict[Tensor, Tensor]:
    """Gradients in the precision of their parameters, which is not always that of their sums."""
    grads = dict(step.gradients)
    for parameter, grad in step.gradients.items():
        if grad.dtype == parameter.dtype:
            continue
        name, shape, strides = f"{parameter.name}/gradient", list(grad.shape), list(grad.strides)
        wide = Tensor(name, "activation", parameter.dtype, shape, strides)
        cast, dtype = torch.ops.aten._to_copy.default, {"dtype": parameter.dtype}
        op = Op(name, cast, [grad], dtype, [wide], "update", "", None)
        _append(step, [op], parameter.name.rpartition(".")[0])
        grads[parameter] = wide
    return grads


def _setting(name: str) -> Tensor:
    # In double precision: 1 - 0.999 in single precision is off in the fifth digit.
    # No argument of loss_fn has a slash in its name.
    return Tensor(f"optimizer/{name}", "input", torch.float64, [], [], setting=name)


def _state(parameter: Tensor, kept: Kept) -> Tensor:
    start = torch.tensor(kept.start, dtype=torch.float64)
    hints = buffer_values(start) if kept.start else {}
    shape, strides = list(kept.shape), list(kept.strides)
    name = f"{parameter.name}/{kept.name}"
    return Tensor(
        name, "optimizer_state", kept.dtype, shape, strides, of=parameter, hints=hints
    )  # fmt: skip


def _append(step: Step, ops: list[Op], scope: str) -> None:
    for op in ops:
        op.phase, op.scope, op.sequence = "update", scope, None
    step.ops.extend(ops)


def _form(tensor: Tensor) -> tuple:
    return tuple(tensor.shape), tuple(tensor.strides), tensor.dtype


def _trace_clip(grads: list[Tensor], limit: float | None):
    """The common 2-norm of gradients and, with a limit, the gradients scaled to at most that.

    The numbers of torch.nn.utils.clip_grad_norm_, without in-place writes.
    """
    mode = FakeTensorMode()

    def run(*grads):
        norm = torch.linalg.vector_norm(
            torch.stack([torch.linalg.vector_norm(grad) for grad in grads])
        )
        if limit is None:
            return [norm]
        factor = torch.clamp(limit / (norm + 1e-6), max=1.0)
        return [norm, *(grad * factor.to(grad.dtype) for grad in grads)]

    with mode:
        given = [
            torch.empty_strided(t.shape, t.strides, dtype=t.dtype, device="cpu") for t in grads
        ]
    return record(run, given, mode)
