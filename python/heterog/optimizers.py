"""The update of a training step: torch.optim's own functional forms, with lr and step as tensors."""

from dataclasses import dataclass, field

import torch
from torch.optim.adam import adam
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from heterog.errors import ExportError
from heterog.refusals import check_hooks

# Defaults of an optimizer that say how to compute, not what: they do not enter the graph's header.
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

    kind: str  # "SGD", "Adam", "AdamW"
    groups: list[Group]
    defaults: dict
    state_names: list[str] = field(default_factory=list)  # for each parameter, zero at the start

    @property
    def counts(self) -> bool:
        """Whether the formula needs the number of the step."""
        return self.kind != "SGD"


def describe_optimizer(optimizer, model: torch.nn.Module) -> Update:
    """Reads kind, groups and hyperparameters of a torch.optim instance or of a factory of one."""
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
    kinds = {torch.optim.SGD: "SGD", torch.optim.Adam: "Adam", torch.optim.AdamW: "AdamW"}
    kind = kinds.get(type(optimizer))
    if kind is None:
        raise ExportError(
            f"optimizer: {type(optimizer).__name__} is not supported; use torch.optim.SGD, Adam or "
            "AdamW"
        )
    check_hooks(model, optimizer)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    seen: set[str] = set()
    groups = []
    first_lr = float(optimizer.param_groups[0]["lr"])
    for index, group in enumerate(optimizer.param_groups):
        options = {k: v for k, v in group.items() if k != "params"}
        _check_options(kind, index, options)
        members = []
        for parameter in group["params"]:
            name = names.get(id(parameter))
            if name is None:
                raise ExportError(
                    f"optimizer: param_groups[{index}] holds a tensor of shape "
                    f"{list(parameter.shape)} that is no parameter of the model; build the "
                    "optimizer from the parameters of the exported model"
                )
            if parameter.requires_grad:
                members.append(name)
                seen.add(name)
        lr = float(options["lr"])
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
    defaults = {
        k: list(v) if isinstance(v, tuple) else v.item() if isinstance(v, torch.Tensor) else v
        for k, v in optimizer.param_groups[0].items()
        if k not in IMPLEMENTATION_KEYS and k != "params" and v is not None
    }
    update = Update(kind, groups, {"name": kind} | defaults)
    options = [group.options for group in groups]
    if kind == "SGD":
        if any(o["momentum"] != 0 for o in options):
            update.state_names = ["momentum_buffer"]
    else:
        update.state_names = ["exp_avg", "exp_avg_sq"]
        if any(o["amsgrad"] for o in options):
            update.state_names.append("max_exp_avg_sq")
    return update


def _check_options(kind: str, index: int, options: dict) -> None:
    where = f"optimizer: param_groups[{index}]"
    for key, value in options.items():
        if isinstance(value, torch.Tensor) and key != "lr":
            raise ExportError(f"{where}: {key} is a tensor; give it as a number")
    if kind == "SGD" and options["momentum"] != 0 and options["dampening"] != 0:
        raise ExportError(
            f"{where}: dampening {options['dampening']} makes the first step differ from all later "
            "ones, which one graph cannot say; use dampening=0"
        )


def has_state(update: Update, options: dict, state: str) -> bool:
    """Whether a parameter of a group with these options carries this state."""
    if state == "momentum_buffer":
        return options["momentum"] != 0
    if state == "max_exp_avg_sq":
        return options["amsgrad"]
    return True


def apply_update(update: Update, group: Group, param, grad, states: dict, lr, step_before) -> None:
    """One step of the optimizer for one parameter, in place on `param` and `states`.

    `lr` and `step_before` (the number of steps done) are zero-dimensional tensors.
    """
    options = group.options
    if group.lr_factor != 1.0:
        lr = lr * group.lr_factor

    def column(state: str) -> list:
        return [states[state]] if state in states else []

    common = {"foreach": False, "fused": False, "maximize": options["maximize"]}
    if update.kind == "SGD":
        # With a rate that asks for a gradient, torch multiplies by the tensor where it would
        # otherwise read the number out of it.
        sgd(
            [param],
            [grad],
            column("momentum_buffer") or [None],
            has_sparse_grad=False,
            weight_decay=options["weight_decay"],
            momentum=options["momentum"],
            lr=lr.detach().requires_grad_(),
            dampening=options["dampening"],
            nesterov=options["nesterov"],
            **common,
        )
        return
    decoupled = options.get("decoupled_weight_decay", update.kind == "AdamW")
    form = adamw if decoupled else adam
    beta1, beta2 = options["betas"]
    # `differentiable` selects the formula that keeps step and lr as tensors on every device.
    form(
        [param],
        [grad],
        column("exp_avg"),
        column("exp_avg_sq"),
        column("max_exp_avg_sq"),
        [step_before.clone()],
        capturable=False,
        differentiable=True,
        amsgrad=options["amsgrad"],
        beta1=beta1,
        beta2=beta2,
        lr=lr,
        weight_decay=options["weight_decay"],
        eps=options["eps"],
        **common,
    )
