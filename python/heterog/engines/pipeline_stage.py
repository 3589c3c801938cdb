"""A rank of torch.distributed.pipelining, from the user's model and what was handed over."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import pipelining
from torch.utils import _pytree as pytree

from heterog.base.errors import InputError
from heterog.base.given import FilePath
from heterog.engines.handed_over import HandedOver, read_handed_over
from heterog.engines.replicas import Place, begin_alike, global_rank, own_rows, sum_across, take_place
from heterog.engines.stage_module import StageModule
from heterog.engines.weighed_loss import WeighedLoss


@dataclass
class SharedParameters:
    """Parameters that the same stages hold: their gradients are summed after each step.

    The stages of a replica send to each other in the group that they have already.
    """

    names: list[str]  # on this rank
    ranks: list[int]  # of those stages, in the whole job
    group: Any  # of the replica's stages

    def sum_gradients(self, model: nn.Module) -> None:
        """Of what has a gradient anywhere; all of these ranks then have the sum, in the same bits."""
        parameters = [model.get_parameter(name) for name in self.names]
        has = [parameter.grad is not None for parameter in parameters]
        anywhere = torch.tensor(has, dtype=torch.int32, device=parameters[0].device)
        self._sum(anywhere)
        for parameter, ranks in zip(parameters, anywhere.tolist(), strict=True):
            if ranks == 0:
                continue
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            self._sum(parameter.grad)

    def _sum(self, tensor: torch.Tensor) -> None:
        """In place: the first of the ranks adds up. All take the parameters in one order, so nobody
        waits in a circle."""
        first, *others = self.ranks
        values = tensor.contiguous()
        if dist.get_rank() == first:
            received = torch.empty_like(values)
            for other in others:
                dist.recv(received, other, group=self.group)
                values += received
            for other in others:
                dist.send(values, other, group=self.group)
        else:
            dist.send(values, first, group=self.group)
            dist.recv(values, first, group=self.group)
        if values is not tensor:
            tensor.copy_(values)


@dataclass
class PipelineStage:
    """This rank's stage of a plan under torch.distributed.pipelining.

    model      the model that was given, without the modules of other stages; names of parameters
               are those of the whole
    stage      PyTorch's PipelineStage
    schedule   PyTorch's schedule
    """

    model: nn.Module
    stage: pipelining.PipelineStage
    schedule: Any
    _handed: HandedOver = field(repr=False)
    _place: Place = field(repr=False)
    _group: Any = field(repr=False)
    _loss: WeighedLoss = field(repr=False)
    _shared: list[SharedParameters] = field(repr=False)

    def step(self, target: torch.Tensor, **inputs: Any) -> torch.Tensor:
        """Forward and backward passes of a batch; returns its loss, on every rank.

        target   for the loss, one entry a sample along dimension 0
        inputs   of the model, by the names of its arguments; tensors have a sample a row

        All ranks give the same; of every micro-batch each takes its replica's part. Gradients are then
        those of the loss of the whole batch, added to what was there; the optimizer's step is yours.
        """
        handed, place = self._handed, self._place
        _check_batch(handed, target, inputs)
        self._loss.begin(target)
        losses: list[torch.Tensor] = []
        last = self.stage.is_last
        tensors = {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}
        self.stage.submod.plain = {name: inputs[name] for name in inputs.keys() - tensors.keys()}
        with _apart(self.model):
            self.schedule.step(
                target=own_rows(handed, place.replica, target) if last else None,
                losses=losses if last else None,
                return_outputs=False,
                **{name: own_rows(handed, place.replica, value) for name, value in tensors.items()},
            )
            # What several stages hold then is the same bits in all of their replicas.
            sum_across(self.model, place)
            for shared in self._shared:
                shared.sum_gradients(self.model)
        loss = torch.stack(losses).mean().detach() if last else torch.zeros(())
        loss = loss.to(self.stage.device, torch.float64)
        dist.all_reduce(loss, group=self._group)
        return loss


def pipeline_stage(
    model: nn.Module,
    handed_over: FilePath,
    loss_fn: Callable[[Any, torch.Tensor], torch.Tensor],
    inputs: dict[str, Any],
    *,
    device: torch.device | str | None = None,
    group: dist.ProcessGroup | None = None,
    schedule_csv: FilePath | None = None,
    count: Callable[[Any], Any] | None = None,
) -> PipelineStage:
    """This rank's stage of a pipeline that `heterog hand-over --to torch-pipelining` wrote.

    model         the whole model, which loses the modules of other stages
    handed_over   the file
    loss_fn       of the model's result and a target: the mean over the samples of a micro-batch
    inputs        of one step, by the names of the model's arguments; the model runs once on those of
                  a micro-batch, to see what its modules hand on
    device        where the stage runs; by default where the model is
    group         the ranks of the pipeline: stage by stage, and of a stage its devices in the order of
                  the file; by default all. Replicas begin with the parameters of the first
    schedule_csv  the order of passes, from `hand-over --schedule-csv`, which PyTorch's runtime of
                  schedules loads; by default a class of PyTorch has it
    count         of a target, what the loss is a mean over, where that is not samples: the labels that
                  are not ignored. A step's loss is then the mean over the whole batch

    Raises an InputError, on all ranks, if the file is not for this model, batch or number of ranks, or
    if a stage reads more of other stages than what it receives.
    """
    handed = read_handed_over(handed_over)
    if handed.schedule == "csv" and schedule_csv is None:
        raise InputError(
            f"{handed.path}: schedule: gradients of parameters are put off, which no schedule of PyTorch "
            "does for one stage a rank; give schedule_csv=, the file of `hand-over --schedule-csv`"
        )
    if dist.get_world_size(group) != handed.ranks:
        raise InputError(f"{handed.path}: {_started(handed)}, not {dist.get_world_size(group)}")
    _check_batch(handed, None, inputs)
    stage, replica = divmod(dist.get_rank(group), handed.replicas)
    lies = next((p.device for p in model.parameters()), torch.device("cpu"))
    rows = handed.rows(replica)
    micro = pytree.tree_map_only(torch.Tensor, lambda t: t[rows].to(lies), inputs)
    held = _held_by_several(model, handed)
    module = StageModule(model, handed, stage, micro)
    device = torch.device(device) if device is not None else lies
    module.to(device)
    _check_reads(handed, module, stage, device, group)
    place = take_place(handed, dist.get_rank(group), group)
    begin_alike(model, place)
    of_torch = pipelining.PipelineStage(
        module,
        stage,
        len(handed.modules),
        device,
        input_args=() if module.received is None else (module.received,),
        output_args=module.result_forms if module.sent is None else (module.sent,),
        group=place.along,
    )
    loss = WeighedLoss(loss_fn, module.result, handed, count)
    if schedule_csv is None:
        schedule = getattr(pipelining, handed.schedule)(of_torch, handed.micro_batches, loss_fn=loss)
    else:
        schedule = _of_csv(f"{schedule_csv}", handed, of_torch, loss)
    shared = _shared(model, held, place)
    return PipelineStage(model, of_torch, schedule, handed, place, group, loss, shared)


def _started(handed: HandedOver) -> str:
    """What has to be started for the file."""
    stages = len(handed.modules)
    if handed.replicas == 1:
        return f"{stages} stages; start {stages} processes, one a stage"
    return f"{stages} stages of {handed.replicas} devices each; start {handed.ranks} processes, one a device"


@contextlib.contextmanager
def _apart(model: nn.Module):
    """Gradients of before are added once those made here are scaled and summed."""
    before = [(p, p.grad) for p in model.parameters() if p.grad is not None]
    for parameter, _ in before:
        parameter.grad = None
    yield
    with torch.no_grad():
        for parameter, gradient in before:
            parameter.grad = gradient if parameter.grad is None else gradient.add_(parameter.grad)


def _of_csv(path: str, handed: HandedOver, stage: pipelining.PipelineStage, loss_fn) -> Any:
    """PyTorch's runtime with the order of the file, which it checks."""
    runtime = getattr(pipelining.schedules, "_PipelineScheduleRuntime", None)
    if runtime is None:
        raise InputError(
            f"schedule_csv: torch {torch.__version__} has no _PipelineScheduleRuntime, which loads such "
            "files; leave it out, or install PyTorch 2.5 or newer"
        )
    schedule = runtime([stage], handed.micro_batches, loss_fn=loss_fn)
    try:
        schedule._load_csv(path)
    except (OSError, AssertionError, RuntimeError, ValueError, KeyError) as error:
        raise InputError(
            f"{path}: no order of passes for {len(handed.modules)} stages and {handed.micro_batches} "
            f"micro-batches: {str(error).splitlines()[0]}"
        ) from error
    return schedule


def _check_reads(handed: HandedOver, module: StageModule, own: int, device, group) -> None:
    """All ranks refuse what one has to refuse."""
    stages = len(handed.modules)
    wrong = torch.tensor(own if module.reads_more else stages, device=device)
    dist.all_reduce(wrong, dist.ReduceOp.MIN, group=group)
    stage = int(wrong)
    if stage == stages:
        return
    received = f" and the first argument of '{handed.begins[stage - 1]}'" if stage else ""
    raise InputError(
        f"{handed.path}: stages[{stage}]: reads more than the model's inputs{received}; expected a cut "
        "through which one tensor alone passes: hand over a plan of a graph of this model"
    )


def _check_batch(handed: HandedOver, target: torch.Tensor | None, inputs: dict[str, Any]) -> None:
    given = {"target": target} | inputs
    for name, value in given.items():
        if not isinstance(value, torch.Tensor):
            continue
        if value.dim() == 0 or value.shape[0] != handed.batch:
            rows = value.shape[0] if value.dim() else "no"
            raise InputError(f"{name}: {rows} samples; {handed.path} is of a batch of {handed.batch}")


def _held_by_several(model: nn.Module, handed: HandedOver) -> list[tuple[list[str], tuple[int, ...]]]:
    """Names of a parameter, and the stages that hold it, in the order of the whole model. All hold
    what is in none of the stages' modules."""
    names_of: dict[int, list[str]] = {}
    stages_of: dict[int, set[int]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if not parameter.requires_grad:
            continue
        stage = handed.stage_of(name)
        names_of.setdefault(id(parameter), []).append(name)
        stages_of.setdefault(id(parameter), set()).update(
            range(len(handed.modules)) if stage is None else (stage,)
        )
    return [
        (names, tuple(sorted(stages_of[key]))) for key, names in names_of.items() if len(stages_of[key]) > 1
    ]


def _shared(model, held: list[tuple[list[str], tuple[int, ...]]], place: Place) -> list[SharedParameters]:
    """In the same order on all ranks, as sums of gradients need it."""
    here = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    found: dict[tuple[int, ...], list[str]] = {}
    for names, stages in held:
        if place.stage in stages:
            found.setdefault(stages, []).append(next(name for name in names if name in here))
    return [
        SharedParameters(names, [global_rank(place.along, s) for s in stages], place.along)
        for stages, names in sorted(found.items())
    ]
