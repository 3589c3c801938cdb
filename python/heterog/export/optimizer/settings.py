"""What the exporter knows of an optimizer before it looks at its step(): groups and settings."""

import inspect
import json
from dataclasses import dataclass, field

import torch

from heterog.base.errors import ExportError
from heterog.export.graph.refusals import check_hooks
from heterog.export.optimizer.number import Known
from heterog.export.optimizer.state_form import StateForm

# Settings of an optimizer that say how to compute, not what: they do not enter the graph's header.
IMPLEMENTATION_KEYS = {"foreach", "fused", "capturable", "differentiable", "initial_lr"}


@dataclass
class Group:
    """Parameters that share hyperparameters; `lr_factor` is relative to the first group's rate."""

    names: list[str]
    options: dict
    lr_factor: float


@dataclass
class Update:
    """What the exporter needs to know of an optimizer."""

    kind: str  # "SGD", "Lion", …
    optimizer: torch.optim.Optimizer
    groups: list[Group]
    defaults: dict
    momentum: Known | None  # None: a constant, else an input of the step
    # By parameter, what add_update found.
    forms: dict[str, StateForm] = field(default_factory=dict)


def describe_optimizer(optimizer, model: torch.nn.Module, momentum_input: bool = False) -> Update:
    """Reads kind, groups and hyperparameters of an optimizer or of a factory of one."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        if not callable(optimizer):
            raise ExportError(
                f"optimizer: {type(optimizer).__name__} is neither a torch.optim optimizer nor a "
                "function of the parameters that returns one"
            )
        trained = [p for p in model.parameters() if p.requires_grad]
        try:
            optimizer = optimizer(trained)
        except Exception as error:
            raise ExportError(
                f"optimizer: making it stopped at {type(error).__name__}: {error}; it is called "
                "with the list of the model's parameters"
            ) from error
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise ExportError(
                f"optimizer: the function returned {type(optimizer).__name__}, no torch.optim "
                "optimizer"
            )
    kind = type(optimizer).__name__
    _check_step(optimizer)
    check_hooks(model, optimizer)
    groups = _groups(optimizer, model)
    defaults = {"name": kind}
    for key, value in optimizer.param_groups[0].items():
        if isinstance(value, torch.Tensor):
            value = value.item()
        if key not in IMPLEMENTATION_KEYS | {"params"} and value is not None and _is_json(value):
            # As the file gives it back.
            defaults[key] = list(value) if isinstance(value, tuple) else value
    momentum = _momentum(groups) if momentum_input else None
    return Update(kind, optimizer, groups, defaults, momentum)


def momentum_of(options: dict):
    """The momentum of a group, as schedulers call it: of some, the first of its betas."""
    return options["betas"][0] if "betas" in options else options.get("momentum")


def _check_step(optimizer) -> None:
    kind = type(optimizer).__name__
    if isinstance(optimizer, torch.optim.SparseAdam):
        raise ExportError(
            f"optimizer: {kind} is for sparse gradients, which a graph has not; use Adam, with "
            "embeddings of sparse=False"
        )
    needed = [
        name
        for name, parameter in list(inspect.signature(type(optimizer).step).parameters.items())[1:]
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    if needed:
        raise ExportError(
            f"optimizer: {kind}: its step() needs a {needed[0]}, so it would evaluate the model again; "
            "a training step does so once; use an optimizer whose step() takes nothing"
        )


def _groups(optimizer, model: torch.nn.Module) -> list[Group]:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    seen: set[str] = set()
    groups = []
    first_lr = 0.0
    for index, group in enumerate(optimizer.param_groups):
        options = {k: v for k, v in group.items() if k != "params"}
        where = f"optimizer: param_groups[{index}]"
        if "lr" not in options:
            raise ExportError(f"{where} has no 'lr', where the step takes its learning rate from")
        for key, value in options.items():
            if isinstance(value, torch.Tensor) and key != "lr":
                raise ExportError(f"{where}: {key} is a tensor; give it as a number")
        members = []
        for parameter in group["params"]:
            name = names.get(id(parameter))
            if name is None:
                raise ExportError(
                    f"{where} holds a tensor of shape {list(parameter.shape)} that is no parameter "
                    "of the model; build the optimizer from the parameters of the exported model"
                )
            if parameter.requires_grad:
                members.append(name)
                seen.add(name)
        lr = float(options["lr"])
        first_lr = lr if index == 0 else first_lr
        if first_lr == 0.0 and lr != 0.0:
            raise ExportError(
                "optimizer: the first group's lr is 0, the others are written relative to it; give "
                "the first group a rate above 0"
            )
        groups.append(Group(members, options, 1.0 if lr == first_lr else lr / first_lr))
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and name not in seen:
            raise ExportError(
                f"optimizer: parameter {name} is in no group; add it, or set its requires_grad to "
                "False"
            )
    return groups


def _momentum(groups: list[Group]) -> Known:
    found = [momentum_of(group.options) for group in groups]
    if not isinstance(found[0], float):
        raise ExportError(
            "momentum_input: the optimizer has neither a momentum nor betas; leave it out"
        )
    for index, value in enumerate(found):
        if value != found[0]:
            raise ExportError(
                f"momentum_input: param_groups[{index}] has the momentum {value}, param_groups[0] "
                f"{found[0]}; one input gives it to all, so make them alike"
            )
    return Known(found[0])


def _is_json(value) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True
