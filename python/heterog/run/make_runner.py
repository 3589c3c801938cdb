"""get_runner: plans a training step for devices that are not all alike, and runs it on data."""

from collections.abc import Sequence
from typing import Any

import torch

from heterog.base.errors import HeterogError
from heterog.base.given import Devices, LossFunction, MakeInputs, Model, Optimizer
from heterog.base.native import load_library
from heterog.base.progress import say_once
from heterog.export.step import export_training_step
from heterog.export.training_step import TrainingStep
from heterog.run.config import RunnerConfig, read_config
from heterog.run.lengths import makers_of
from heterog.run.prepare import make_files
from heterog.run.runner import Made, Runner
from heterog.run.untraced import Untraced


def get_runner(
    model: Model,
    make_inputs: MakeInputs | Sequence[MakeInputs],
    loss_fn: LossFunction,
    optimizer: Optimizer,
    device_info: Devices,
    config: RunnerConfig | dict[str, Any] | None = None,
) -> Runner:
    """Exports the training step, plans it for the devices, and makes their workers.

    model        an nn.Module, or a function that builds one; training begins with its weights
    make_inputs  batch size → tuple of tensors; or a list of such functions, one for each length of
                 sentences or size of images that steps will have: the first is planned
    loss_fn      (model, *inputs) → scalar tensor; or that and a dict of other tensors, by name, for
                 Runner.outputs()
    optimizer    a torch.optim.Optimizer over the model's parameters, or a function parameters →
                 optimizer; training goes on from its state
    device_info  a cluster file; "auto"; "cpu:2"; a list of device models; or a dict as in a cluster file
    config       a dict of the settings of heterog.RunnerConfig; `batch` or `plan` is needed

    Devices are threads of this process, or, where torchrun started it, one process each; of those
    of one host the first exports and plans, and the others take what it has found.
    """
    config = read_config(config)
    load_library()  # before the long work of exporting
    built = model if isinstance(model, torch.nn.Module) else _made("model", model)
    if not isinstance(built, torch.nn.Module):
        raise HeterogError(f"model: the function returned {type(built).__name__}, no nn.Module")
    for name, tensor in [*built.named_parameters(), *built.named_buffers()]:
        if tensor.device.type == "meta":
            raise HeterogError(f"model: '{name}' holds no values, it is on the meta device; load it")
    if isinstance(optimizer, torch.optim.Optimizer):
        trainer = optimizer
    else:
        trained = [p for p in built.parameters() if p.requires_grad]
        trainer = _made("optimizer", optimizer, trained)
    makers = makers_of(make_inputs)

    def export(number: int, batches: tuple[int, ...] | None, **others) -> TrainingStep:
        return export_training_step(
            built,
            makers[number],
            loss_fn,
            trainer,
            config.name,
            batches=batches,
            batch=config.batch,
            dropout=config.dropout,
            double=config.double,
            autocast=config.autocast,
            param_dtype=config.param_dtype,
            reduce_dtype=config.reduce_dtype,
            clip_norm=config.clip_norm,
            gradient_norm=config.gradient_norm,
            batch_norm=config.batch_norm,
            attention=config.attention,
            loss_scaling=config.loss_scaling,
            momentum_input=config.momentum_input,
            fused_update=config.fused_update,
            cache=None if config.cache is False else config.folder,
            **others,
        )

    def make() -> Made:
        steps = [export(i, config.batches, check=config.check) for i in range(len(makers))]
        if config.check is not False:
            for step in steps:
                if step.checked.startswith("not checked"):
                    say_once(f"{config.name}: the exported step is {step.checked}")
        untraced = Untraced(steps, lambda number, batches: export(number, batches, check=False))
        return Made(steps, make_files(steps, device_info, config), untraced)

    return Runner(built, trainer, loss_fn, makers, make, config)


def _made(what: str, function, *arguments):
    if not callable(function):
        raise HeterogError(
            f"{what}: {type(function).__name__} given; it is one, or a function that makes one"
        )
    try:
        return function(*arguments)
    except Exception as error:
        raise HeterogError(
            f"{what}: making it stopped at {type(error).__name__}: {error}"
        ) from error
