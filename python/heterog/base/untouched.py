"""Puts back, to the bit, what trial steps of a training change."""

import copy
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from heterog.base.data_parallel import in_shards, own_part


@contextmanager
def untouched(model: torch.nn.Module, also: Sequence = ()) -> Iterator[None]:
    """What runs inside leaves no trace in the parameters, buffers and gradients of `model`, in the
    PyTorch optimizers whose step() it calls, in the generators of random numbers of PyTorch, Python
    and NumPy, and in what `also` names: objects with state_dict and load_state_dict (a GradScaler,
    a scheduler). Tensors stay the objects that they are. Copies are kept in the host's memory; of
    sharded ones, those of the own part.
    """
    in_shards(model)
    back = [_slots(model), _gradients(model), _random_numbers(model)]
    optimizers = {}
    for thing in also:
        optimizer = getattr(thing, "optimizer", thing)  # a scheduler changes its optimizer's
        if isinstance(optimizer, Optimizer):
            optimizers[optimizer] = _optimizer(optimizer)
        if not isinstance(thing, Optimizer):
            back.append(_state_dict(thing))

    def before_step(optimizer, _args, _kwargs):
        if optimizer not in optimizers:
            optimizers[optimizer] = _optimizer(optimizer)

    watching = register_optimizer_step_pre_hook(before_step)
    try:
        yield
    finally:
        watching.remove()
        in_shards(model)
        with torch.no_grad():
            for put_back in [*back, *optimizers.values()]:
                put_back()


def _kept(value):
    """A function that gives `value` as it is now: a tensor as the same object, with its values."""
    if not isinstance(value, torch.Tensor):
        copied = copy.deepcopy(value)
        return lambda: copied
    values = own_part(value.detach()).to("cpu", copy=True)

    def give():
        own_part(value.detach()).copy_(values)
        return value

    return give


def _slots(model):
    """Parameters and buffers, and which tensor stands where."""
    slots = [
        (holder, name, _kept(value))
        for module in model.modules()
        for holder in (module._parameters, module._buffers)
        for name, value in holder.items()
        if value is not None
    ]

    def put_back():
        for holder, name, give in slots:
            holder[name] = give()

    return put_back


def _gradients(model):
    kept = [(p, None if p.grad is None else (p.grad, _kept(p.grad))) for p in model.parameters()]

    def put_back():
        for parameter, gradient in kept:
            if gradient is None:
                parameter.grad = None
                continue
            parameter.grad = gradient[0]
            gradient[1]()

    return put_back


def _random_numbers(model):
    devices = {p.device for p in model.parameters() if p.device.type == "cuda"}
    on_cuda = {device: torch.cuda.get_rng_state(device) for device in devices}
    on_cpu = torch.get_rng_state()
    of_python = random.getstate()
    numpy = sys.modules.get("numpy")
    of_numpy = numpy.random.get_state() if numpy else None

    def put_back():
        for device, state in on_cuda.items():
            torch.cuda.set_rng_state(state, device)
        torch.set_rng_state(on_cpu)
        random.setstate(of_python)
        if numpy:
            numpy.random.set_state(of_numpy)

    return put_back


def _optimizer(optimizer):
    state = {
        parameter: {name: _kept(value) for name, value in slots.items()}
        for parameter, slots in optimizer.state.items()
    }
    groups = [
        {name: _kept(value) for name, value in group.items() if name != "params"}
        for group in optimizer.param_groups
    ]

    def put_back():
        optimizer.state.clear()
        for parameter, slots in state.items():
            optimizer.state[parameter] = {name: give() for name, give in slots.items()}
        for group, options in zip(optimizer.param_groups, groups, strict=True):
            group.update({name: give() for name, give in options.items()})

    return put_back


def _state_dict(thing):
    state = copy.deepcopy(thing.state_dict())
    return lambda: thing.load_state_dict(state)
