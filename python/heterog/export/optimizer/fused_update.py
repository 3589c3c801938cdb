"""Updates by PyTorch's fused kernels: Adam, AdamW and SGD as one operator for each parameter.

The operators take lists. Each has one parameter in the graph; where several are updated at the same
place and time, whoever runs the step calls the kernel once for all of them.
"""

import torch
from torch._subclasses.fake_impls import register_op_impl
from torch._subclasses.fake_tensor import FakeTensorMode

from heterog.export.graph.record import record

_aten = torch.ops.aten

# What a form's module takes before what is kept (form.py), and after it.
_SCALAR = ((), (), torch.float64)
_FLAG = ((), (), torch.float32)
_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def fused_module(update, group, parameter: tuple, gradient: tuple, form, leaves_out: bool):
    """The module of a form whose state is `form`, by one operator, or None where no kernel does what the optimizer does.
    `leaves_out`: its last argument is 1 where the step is to change nothing, else 0."""
    if update.momentum is not None or parameter[2] not in _FLOATS or gradient[2] != parameter[2]:
        return None
    if any(kept.dtype != parameter[2] for kept in form.kept):
        return None
    names = [kept.name for kept in form.kept]
    kind = type(update.optimizer)  # a class of a user's own may do anything in its step()
    if kind in (torch.optim.Adam, torch.optim.AdamW):
        kernel = _adam(group.options, names, form)
    elif kind is torch.optim.SGD:
        kernel = _sgd(group.options, names, form)
    else:
        return None
    if kernel is None:
        return None

    def run(p, g, lr, _momentum, number, *rest):
        held, found_inf = (rest[:-1], rest[-1]) if leaves_out else (rest, None)
        rate = lr if group.lr_factor == 1.0 else lr * group.lr_factor
        return kernel(p, g, rate, number, held, found_inf)

    mode = FakeTensorMode()
    forms = [parameter, gradient, _SCALAR, _SCALAR, _SCALAR]
    forms += [(kept.shape, kept.strides, kept.dtype) for kept in form.kept]
    forms += [_FLAG] if leaves_out else []
    with mode:
        fakes = [
            torch.empty_strided(shape, strides, dtype=dtype, device="cpu")
            for shape, strides, dtype in forms
        ]
    return record(run, fakes, mode)


def _adam(options: dict, names: list[str], form):
    own = ["exp_avg", "exp_avg_sq"] + (["max_exp_avg_sq"] if options["amsgrad"] else [])
    count = form.counts.get("step")
    if names != own or count is None or not all(isinstance(b, float) for b in options["betas"]):
        return None
    decoupled = options.get("decoupled_weight_decay", False)
    operator = (_aten._fused_adamw if decoupled else _aten._fused_adam).tensor_lr

    def kernel(p, g, lr, number, held, found_inf):
        if count.start:
            number = number + count.start
        results = operator(
            [p], [g], *([tensor] for tensor in held[:2]), list(held[2:]), [number],
            lr=lr, beta1=options["betas"][0], beta2=options["betas"][1],
            weight_decay=float(options["weight_decay"]), eps=float(options["eps"]),
            amsgrad=options["amsgrad"], maximize=options["maximize"], found_inf=found_inf,
        )  # fmt: skip
        return [results[0][0], results[2][0], results[3][0], *results[4]]

    return kernel


def _sgd(options: dict, names: list[str], form):
    momentum = options["momentum"]
    if names != (["momentum_buffer"] if momentum else []) or any(k.start for k in form.kept):
        return None
    # With dampening the first step is another one.
    if momentum and options["dampening"] != 0:
        return None

    def kernel(p, g, lr, _number, held, found_inf):
        results = _aten._fused_sgd.tensor_lr(
            [p], [g], list(held),
            weight_decay=float(options["weight_decay"]), momentum=float(momentum), lr=lr,
            dampening=0.0, nesterov=options["nesterov"], maximize=options["maximize"],
            is_first_step=False, found_inf=found_inf,
        )  # fmt: skip
        return [results[0][0], *results[2]]

    return kernel


# How many lists each updates, its first ones.
_KERNELS = {
    _aten._fused_adam.tensor_lr: 5,
    _aten._fused_adamw.tensor_lr: 5,
    _aten._fused_sgd.tensor_lr: 3,
}


@register_op_impl(list(_KERNELS))
def _like_what_they_update(mode, kernel, *args, **_kwargs):
    """Of tensors without values PyTorch would run the kernel itself, on zeros."""
    with mode:
        return tuple([torch.empty_like(x) for x in items] for items in args[: _KERNELS[kernel]])


def forget_gradients(ops: list) -> None:
    """The kernels return gradients too, as they were: nobody wants these."""
    for op in ops:
        if op.target in _KERNELS:
            op.outputs[1] = None


def _as_kernels_want(operator):
    """The kernels take for granted that all tensors of a parameter lie alike in memory, and that
    their flag is in float32, also where all else is in float64."""

    def call(parameters, *lists, found_inf=None, **kwargs):
        parameters = [p if p.is_contiguous() else _dense(p) for p in parameters]
        steps = [lists[-1]] if operator is not _aten._fused_sgd.tensor_lr else []
        alike = [
            [_laid_like(x, p) for x, p in zip(items, parameters, strict=False)]
            for items in lists[: len(lists) - len(steps)]
        ]
        flag = None if found_inf is None else found_inf.float()
        results = operator(parameters, *alike, *steps, found_inf=flag, **kwargs)
        return [tensor for part in results for tensor in part]

    return call


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """empty_like keeps strides that leave no gaps."""
    return tensor if torch.empty_like(tensor).stride() == tensor.stride() else tensor.contiguous()


def _laid_like(tensor: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    if tensor.stride() == other.stride():
        return tensor
    return torch.empty_like(other).copy_(tensor)


def operators() -> dict:
    """The operators by name, as functions that return a flat list."""
    return {str(kernel): _as_kernels_want(kernel) for kernel in _KERNELS}
