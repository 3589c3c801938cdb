"""All that an exported step depends on, as one digest: two exports of one key give the same step.

Values of parameters and buffers are not in it: a step is traced without them. What the file says of
buffers' values is written anew where a step is taken from the cache.
"""

import platform

import torch
from torch.nn.modules import module as modules

from heterog.base.errors import ExportError
from heterog.export.graph.samples import Samples
from heterog.export.optimizer.one_step import first_state
from heterog.export.optimizer.settings import Update
from heterog.export.state.fingerprint import Fingerprint, Unhashable, form_of
from heterog.export.state.tf32 import tf32_allowed

# Dicts of hooks, by numbers that count all hooks of a process.
_HOOKS = (
    "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_forward_hooks",
    "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_backward_pre_hooks",
    "_backward_hooks",
)  # fmt: skip
# What is hashed apart, and what no step runs.
_MODULE_ASIDE = {
    *_HOOKS, "_parameters", "_buffers", "_modules", "_state_dict_hooks", "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
}  # fmt: skip
# Lists of their parameters, which are kept as the parameters are.
_RECURRENT_ASIDE = {"_flat_weights", "_flat_weight_refs"}
OPTIMIZER_ASIDE = {"param_groups", "state", "defaults", "step", "_opt_called", "_step_count"}


def export_key(
    model: torch.nn.Module, loss_fn, update: Update, samples: Samples, sizes: set[int], settings: dict
) -> str:
    """`settings`: all options of the export, as plain values. Raises Unhashable."""
    found = Fingerprint()
    found.add(settings, "the settings of the export")
    found.add(surroundings(), "PyTorch's settings")
    _add_inputs(found, samples, sizes)
    add_step(found, model, loss_fn, update.optimizer)
    _add_optimizer(found, update)
    return found.digest()


def add_step(found: Fingerprint, model: torch.nn.Module, loss_fn, optimizer) -> None:
    """The registry of what a step depends on beside values of tensors and options: what the key of
    an export holds, and what a runner compares before each step (registry.py)."""
    for path, module in model.named_modules():
        found.know(module, f"module {path}")
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        found.know(tensor, f"tensor {name}")
    found.know(optimizer, "optimizer")
    _add_tensors(found, model)
    for path, module in model.named_modules():
        _add_module(found, module, f"model.{path}" if path else "model")
    found.add(loss_fn, "loss_fn")
    for name, value in vars(optimizer).items():
        if name not in OPTIMIZER_ASIDE:
            found.add_named(name, value, f"optimizer.{name}")


def surroundings() -> dict:
    """What is set in PyTorch for the whole process, and where."""
    if torch._C._len_torch_dispatch_stack() or any(
        type(mode).__name__ != "DeviceContext"
        for mode in torch.overrides._get_current_function_mode_stack()
    ):
        raise Unhashable("PyTorch", "in a mode of the caller's, which may change what is traced")
    return {
        "dtype": torch.get_default_dtype(),
        "device": str(torch.get_default_device()),
        "gradients": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "tf32": tf32_allowed(),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "machine": (platform.machine(), torch.backends.cpu.get_cpu_capability()),
        "cuda": torch.cuda.is_available(),
        "hooks": [
            list(getattr(modules, name).values())
            for name in sorted(vars(modules))
            if name.startswith("_global_") and isinstance(getattr(modules, name), dict)
        ],
    }


def _add_inputs(found: Fingerprint, samples: Samples, sizes: set[int]) -> None:
    for size in sorted(sizes):
        try:
            forms = [form_of(tensor) for tensor in samples.at(size)]
        except ExportError:
            forms = []
        found.add((size, forms), "make_inputs")


def _add_tensors(found: Fingerprint, model: torch.nn.Module) -> None:
    """Forms, and which names are of one tensor."""
    numbers: dict[int, int] = {}
    for kind in (model.named_parameters, model.named_buffers):
        for name, tensor in kind(remove_duplicate=False):
            number = numbers.setdefault(id(tensor), len(numbers))
            found.add((name, number, form_of(tensor)), name)
            if vars(tensor) or tensor._backward_hooks:
                found.add(vars(tensor), name)
                hooks = (tensor._backward_hooks or {}).values()
                found.add(tuple(hooks), f"a hook of {name}")


def _add_module(found: Fingerprint, module: torch.nn.Module, where: str) -> None:
    found.add_class_of(module, where)
    found.place(vars(module), where)
    for name in ("_parameters", "_buffers", "_modules", *_HOOKS):
        if getattr(module, name, None) is not None:
            found.place(getattr(module, name), where, "hooks" if name in _HOOKS else name)
    # Tuples: a list would be watched for changes.
    found.add((tuple(module._parameters), tuple(module._buffers)), where)
    found.add(tuple(module._modules), where)
    for name, inner in module._modules.items():
        found.add_named(name, inner, f"{where}.{name}")
    numbers = sorted({number for name in _HOOKS for number in getattr(module, name, None) or ()})
    for name in _HOOKS:
        hooks = (getattr(module, name, None) or {}).items()
        found.add(tuple((numbers.index(n), h) for n, h in hooks), f"a hook of {where}")
    aside = _MODULE_ASIDE
    if isinstance(module, torch.nn.RNNBase):
        aside = aside | _RECURRENT_ASIDE
    for name, value in vars(module).items():
        if name in aside:
            continue
        plain = isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter)
        found.add_named(name, form_of(value) if plain else value, f"{where}.{name}")


def _add_optimizer(found: Fingerprint, update: Update) -> None:
    optimizer = update.optimizer
    found.add(type(optimizer), "optimizer")
    groups = [(group.names, group.options, group.lr_factor) for group in update.groups]
    found.add((groups, update.defaults, optimizer.defaults, _first_state(update)), "optimizer")


def _first_state(update: Update) -> list:
    """What a new optimizer of this kind holds before its first step: the given one may have trained."""
    if not update.optimizer.state:
        return []
    parameter = torch.nn.Parameter(torch.zeros(2, 2))
    try:
        return sorted(first_state(update.optimizer, update.groups[0].options, parameter))
    except ExportError:
        return ["cannot be made"]
