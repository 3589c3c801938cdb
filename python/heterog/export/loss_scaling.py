"""Dynamic loss scaling for float16, inside the step: the rules of torch.amp.GradScaler.

The scale, how many steps have gone well since it last changed, and how many steps were left out
are buffers of the step, as running statistics are. A step whose gradients overflow leaves every
parameter and all optimizer state as they are; nobody reads a number back to decide that.
"""

from dataclasses import dataclass, fields

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from heterog.base.errors import ExportError
from heterog.export.graph.ir import SCALE, Op, Step, Tensor

@dataclass(frozen=True)
class LossScaling:
    """As the arguments of torch.amp.GradScaler."""

    init_scale: float = 2.0**16
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000


def read_scaling(given, narrow: str | None) -> LossScaling | None:
    """From a LossScaling, a dict, True or False; None: where float16 needs it."""
    if given is None:
        given = narrow == "float16"
    if isinstance(given, bool):
        return LossScaling() if given else None
    if isinstance(given, dict):
        names = [field.name for field in fields(LossScaling)]
        for name in given:
            if name not in names:
                raise ExportError(f"loss_scaling: {name!r} is not known; it has {', '.join(names)}")
        given = LossScaling(**given)
    if not isinstance(given, LossScaling):
        raise ExportError(
            f"loss_scaling: {type(given).__name__} given; use a LossScaling, a dict, True or False"
        )
    good = (
        given.init_scale > 0
        and given.growth_factor > 1
        and 0 < given.backoff_factor < 1
        and given.growth_interval >= 1
    )
    if not good:
        raise ExportError(
            f"loss_scaling: {given}; expected init_scale above 0, growth_factor above 1, "
            "backoff_factor between 0 and 1, growth_interval of 1 or more"
        )
    return given


@dataclass
class Scaled:
    """What the update of a scaled step goes by."""

    grads: dict[Tensor, Tensor]  # divided by the scale
    overflow: Tensor  # whether any of them is infinite or no number
    flag: Tensor  # the same as a number, 0 or 1
    number: Tensor  # of the step, counted over those that were not left out


def scale_of(step: Step) -> Tensor:
    return next(t for t in step.inputs if t.name == SCALE)


def unscale(step: Step, grads: dict[Tensor, Tensor], number, rules: LossScaling) -> Scaled:
    """Appends what comes between the gradients, by parameter, and the update, and the next scale."""
    scale = scale_of(step)
    steady = _buffer("loss_scale/steady_steps", torch.int64, 0)
    left_out = _buffer("loss_scale/steps_left_out", torch.float64, 0.0)
    scale.hints = {"values": {"fill": rules.init_scale}}
    step.inputs.extend([steady, left_out])

    def run(scale, steady, left_out, number, *grads):
        # The first step that is not left out has number 1. Old values are read before next ones are
        # made.
        counted = (number - left_out).clamp(min=1.0)
        # In the precisions of GradScaler.unscale_.
        inverse = scale.double().reciprocal().float()
        unscaled = [grad * inverse.to(grad.dtype) for grad in grads]
        finite = torch.stack([grad.isfinite().all() for grad in unscaled]).all()
        overflow = finite.logical_not()
        longer = steady + 1
        grows = longer >= rules.growth_interval
        grown = scale * rules.growth_factor
        kept = torch.where(grows & grown.isfinite(), grown, scale)
        next_scale = torch.where(overflow, scale * rules.backoff_factor, kept)
        next_steady = torch.where(overflow | grows, torch.zeros_like(steady), longer)
        next_left_out = left_out + overflow.to(left_out.dtype)
        flag = overflow.to(torch.float32)
        return [overflow, flag, counted, next_scale, next_steady, next_left_out, *unscaled]

    mode = FakeTensorMode()
    given = [scale, steady, left_out, number, *grads.values()]
    with mode:
        fakes = [
            torch.empty_strided(t.shape, t.strides, dtype=t.dtype, device="cpu") for t in given
        ]
    # Here: reading a config, which has this module's class, need not load the exporter.
    from heterog.export.graph.record import record
    from heterog.export.tracing.merge import Merger

    merger = Merger([record(run, fakes, mode)], [0], "loss_scale/")
    overflow, flag, counted, *following = merger.run(given)
    _append(step, merger.ops)
    step.next |= dict(zip([scale, steady, left_out], following, strict=False))
    unscaled = dict(zip(grads, following[3:], strict=True))
    return Scaled(unscaled, overflow, flag, counted)


def masked(step: Step, scaled: Scaled, of: Tensor, result: Tensor) -> Tensor:
    """Appends the choice between what stays as it is and what becomes of it."""
    made = Tensor(f"{of.name}/kept", "activation", of.dtype, list(of.shape), list(of.strides))
    where = torch.ops.aten.where.self
    op = Op(made.name, where, [scaled.overflow, of, result], {}, [made], "update", "", None)
    step.ops.append(op)
    return made


def _append(step: Step, ops: list[Op]) -> None:
    for op in ops:
        op.phase, op.scope, op.sequence = "update", "", None
    step.ops.extend(ops)


def _buffer(name: str, dtype: torch.dtype, start) -> Tensor:
    return Tensor(name, "buffer", dtype, [], [], hints={"values": {"fill": start}})
