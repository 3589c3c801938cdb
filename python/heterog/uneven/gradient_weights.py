"""Gradients of DistributedDataParallel and fully_shard that count by samples and not by ranks, exactly.

The gradient of each parameter is multiplied as it leaves a backward pass, before it is added to what
other passes left there and before PyTorch averages: by ranks × n_rank / n_global of
the pass's own batch. So every pass has its own weight, however many of them are accumulated, and a
communication hook of the user's (half precision, PowerSGD) stays free to be registered.
"""

from collections.abc import Callable, Iterable, Iterator

import torch
import torch.distributed as dist
from torch.autograd import Variable
from torch.distributed.algorithms.join import Join, Joinable, JoinHook
from torch.utils.hooks import unserializable_hook

from heterog.base.data_parallel import (
    check_sharding,
    device_of,
    gradient_leaves,
    group_of,
    is_sharded,
    is_wrapped,
    sums_gradients,
)
from heterog.uneven.output_weights import weigh_outputs
from heterog.uneven.process_end import released_before_the_end
from heterog.uneven.sampler import UnevenBatchSampler


class Weight:
    """How much one batch of this rank counts: its part of the count of all ranks, or a sum of the
    ranks' counts that is still on its way."""

    def __init__(self, own, total, ranks: int, scale: float, work=None):
        self._own, self._total = own, total
        self._ranks, self._scale = ranks, scale
        self._work = work
        self._counted = work is not None or isinstance(own, torch.Tensor)
        self._factor: tuple | None = None

    @property
    def key(self) -> tuple | None:
        """Equal keys: equal weights. None: only the ranks together know."""
        return None if self._counted else (self._own, self._total, self._scale)

    @property
    def factor(self) -> tuple:
        """What gradients are multiplied by before they are averaged, and whether it is 0; numbers,
        or tensors with one element."""
        if self._factor is None:
            if self._work is not None:
                self._work.wait()
                self._work = None
            own, total = self._own, self._total
            if isinstance(own, torch.Tensor) or isinstance(total, torch.Tensor):
                device = (own if isinstance(own, torch.Tensor) else total).device
                own, total = scalar(own, device), scalar(total, device)
                quotient = own * self._ranks / total
                factor = torch.where(total == 0, 1.0, quotient) / self._scale
                self._factor = factor, factor == 0
                self._own = self._total = None  # not held on to when the process ends
            else:
                factor = (own * self._ranks / total if total > 0 else 1.0) / self._scale
                self._factor = factor, factor == 0
        return self._factor

    @property
    def share(self) -> float | torch.Tensor:
        """The count over that of all ranks."""
        return self.factor[0] / self._ranks


class GradientWeights(Joinable):
    """How much this rank's gradients count in each step; made by `weighted_gradients`.

    A backward pass of the model needs the weight of its batch first, from `batches` or from
    `start`; it holds for all passes until the next one begins.
    """

    def __init__(self, ddp_model, sampler: UnevenBatchSampler | None):
        super().__init__()
        self._model = ddp_model
        self._group = group_of(ddp_model)
        self.ranks = dist.get_world_size(self._group)
        self._sampler = sampler
        self._device = device_of(ddp_model)
        self.scale = 1  # what each rank's loss has been multiplied by already
        self.current: Weight | None = None
        self.missing = "iterate over batches(loader), or call start(count) before the backward pass"
        self._at_outputs = _synchronised_norm(ddp_model) is not None
        self._noted = False  # the end of this backward pass will be told
        self.on_reduced: Callable | None = None  # called when all gradients of a pass are there
        self.on_pass: Callable | None = None  # called with the model's inputs before a pass
        for parameter in gradient_leaves(ddp_model):
            parameter.register_hook(self._weighed)
        ddp_model.register_forward_pre_hook(_Entry(self), with_kwargs=True)
        self._within_pass = lambda: False
        if self._at_outputs:
            self._within_pass = weigh_outputs(ddp_model, lambda: self._now().factor[0])

    def batches(self, loader: Iterable) -> Iterator:
        """The batches of a DataLoader over the sampler, each with its weight set."""
        if self._sampler is None:
            raise RuntimeError(
                "batches: weighted_gradients was given no sampler; pass it, or use start(count)"
            )
        if getattr(loader, "batch_sampler", self._sampler) is not self._sampler:
            raise ValueError(
                "batches: the loader's batch_sampler is another than the one given to "
                "weighted_gradients"
            )
        for number, batch in enumerate(loader):
            self.start_batch(number)
            yield batch

    def start_batch(self, number: int) -> None:
        """Sets the weight of batch `number` of the sampler's epoch, by samples."""
        sizes = self._sampler.sizes(number)
        self.check_sizes(number, sizes)
        self.start(sizes[self._sampler.rank], total=sum(sizes))

    def check_sizes(self, number: int, sizes: list[int]) -> None:
        if self._at_outputs and 0 in sizes:
            raise ValueError(
                f"batch {number} has {sum(sizes)} samples, and none for rank {sizes.index(0)}, "
                "whose stand-in would enter the statistics of SyncBatchNorm: leave the last batch "
                "out (drop_last=True)"
            )

    def start(self, count, total=None) -> None:
        """Sets the weight of the backward passes to come, until the next call.

        count  what this rank's loss is a mean over: samples, or tokens that are not ignored; a
               number or a tensor with one element, 0 if the rank has none
        total  the same over all ranks; if not given, the ranks add theirs up, while forward runs

        Where no rank has any, each keeps the gradient that its loss gives for nothing (0 from
        cross_entropy, NaN from a quotient by 0), as one process would.
        """
        Join.notify_join_context(self)
        (self.current,) = self.weights([count], None if self._join_config.enable else total)

    def weights(self, counts: list, total=None, parts: float = 1) -> list[Weight]:
        """Those of this rank's batches of one step, none of which is the current one yet. All ranks
        must call it where `total` is not given. `parts`: what the loss is divided by because so many
        batches are accumulated."""
        scale = self.scale / parts
        if total is None:
            counts = [scalar(count, self._device) for count in counts]
            whole = released_before_the_end(torch.stack(counts).sum())
            work = dist.all_reduce(whole, group=self._group, async_op=True)
            return [Weight(own, whole, self.ranks, scale, work) for own in counts]
        for count in counts:
            both = isinstance(count, torch.Tensor) or isinstance(total, torch.Tensor)
            if not both and not 0 <= count <= total:
                raise ValueError(f"start: count {count} of total {total}; expected 0 ≤ count ≤ total")
        return [Weight(count, total, self.ranks, scale) for count in counts]

    def forget(self, missing: str) -> None:
        """No batch has begun; `missing` is what to do, in words."""
        self.current, self.missing = None, missing

    @property
    def share(self) -> float | torch.Tensor:
        """This rank's count over that of all ranks, of the last batch that was started."""
        return self._now().share

    def loss(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss of the global batch, from the mean that each rank has; on every rank, without
        gradient. All ranks must call it."""
        whole = _multiplied(loss.detach(), *self._now().factor) / self.ranks
        dist.all_reduce(released_before_the_end(whole), group=self._group)
        return whole.clone()

    def join(self, **options) -> Join:
        """In place of `ddp_model.join()`, where ranks have different numbers of batches: those that
        have none left count 0. Batches then need `start(count)`; `total` is of no use."""
        if is_sharded(self._model):
            raise ValueError(
                "join: all ranks of a sharded model make as many passes: give those without a batch "
                "one sample and start(0)"
            )
        return Join([self, self._model], **options)

    @property
    def summed(self) -> bool:
        """Whether the gradients of a pass that begins now are summed over the ranks."""
        return sums_gradients(self._model)

    def _now(self) -> Weight:
        if self.current is None:
            raise RuntimeError(f"this backward pass has no weight: {self.missing}")
        return self.current

    @unserializable_hook  # parameters are written to checkpoints without it
    def _weighed(self, gradient: torch.Tensor) -> torch.Tensor:
        if self._within_pass():
            raise RuntimeError(
                "the model has SyncBatchNorm, is weighed at its outputs for that, and runs a backward pass "
                "before it has returned them (a training_step that optimizes by hand?): return the loss, "
                "or take a model without SyncBatchNorm"
            )
        factor = self._now().factor
        if self.on_reduced is not None and not self._noted and self.summed:
            self._noted = True
            # Before what DistributedDataParallel queues when its last bucket is ready, which waits
            # for the others.
            Variable._execution_engine.queue_callback(self._passed)
        return gradient if self._at_outputs else _multiplied(gradient, *factor)

    def _passed(self) -> None:
        self._noted = False
        if self.on_reduced is not None:
            self.on_reduced()

    def join_hook(self, **_options) -> JoinHook:
        return _NothingLeft(self)

    @property
    def join_device(self) -> torch.device:
        return self._model.join_device

    @property
    def join_process_group(self):
        return self._model.join_process_group


class _Entry:
    """Stands before each forward pass of a weighed model. It is one object in all copies of the
    model, so that it knows them: their parameters have no weights."""

    def __init__(self, weights: GradientWeights):
        self.weights = weights

    @torch.compiler.disable  # which batch it is changes from pass to pass
    def __call__(self, model, inputs, named) -> None:
        if not torch.is_grad_enabled():
            return
        if model is not self.weights._model:
            if model.training and any(p.requires_grad for p in model.parameters()):
                raise RuntimeError(
                    "this model is a copy of one that has unequal shares, "
                    "and its gradients would not be weighed: run it under torch.no_grad() or eval(), "
                    "or set its shares up as those of the first"
                )
            return
        if self.weights.on_pass is not None:
            self.weights.on_pass((inputs, named))

    def __deepcopy__(self, _memo) -> "_Entry":
        return self

    def __reduce__(self):
        return _no_entry, ()  # a model that is read from a file is nobody's copy


def _no_entry() -> Callable:
    return _pass


def _pass(_model, _inputs, _named) -> None:
    pass


class _NothingLeft(JoinHook):
    """What a rank without batches does in the steps of the others, before what the model does: it
    adds nothing to their count."""

    def __init__(self, weights: GradientWeights):
        self.weights = weights

    def main_hook(self) -> None:
        weights = self.weights
        nothing = released_before_the_end(scalar(0, weights._device))
        dist.all_reduce(nothing, group=weights._group)


def _multiplied(values: torch.Tensor, factor, nothing) -> torch.Tensor:
    """What counts nothing is 0 even where it is NaN: a mean over nothing."""
    if isinstance(factor, torch.Tensor):
        product = values * factor.to(values.device)
        return product if values.is_sparse else product.masked_fill_(nothing.to(values.device), 0)
    if factor == 1:
        return values
    return torch.zeros_like(values) if nothing else values * factor


def scalar(value, device) -> torch.Tensor:
    return torch.as_tensor(value).detach().to(device, torch.float64, copy=True).reshape(())


def _synchronised_norm(ddp_model) -> str | None:
    """The name of a layer that adds up the ranks' gradients in its backward pass."""
    for name, module in ddp_model.named_modules():
        if isinstance(module, torch.nn.SyncBatchNorm):
            return name
    return None


def weighted_gradients(ddp_model, sampler: UnevenBatchSampler | None = None) -> GradientWeights:
    """Makes a DistributedDataParallel or fully_shard model sum its ranks' gradients by how much each
    rank has of the batch, in place of their plain mean: for a loss that is a mean, the result is the gradient
    of the mean over the global batch, exactly, whatever the sizes.

    Call it after wrapping the model and before the first backward pass; a second call for the same
    model gives the same weights, with the new sampler. With a sampler, take the batches from
    `.batches(loader)`; for a mean over something other than samples (tokens that are not ignored),
    leave the sampler out and call `.start(count)` before the backward passes of each batch. A model
    with SyncBatchNorm is weighed at its outputs in place of its gradients: output_weights.py says
    why, and what it refuses.
    """
    if not is_wrapped(ddp_model):
        raise ValueError(
            f"ddp_model: {type(ddp_model).__name__}; wrap the model in DistributedDataParallel, or call "
            "fully_shard on it, first"
        )
    if is_sharded(ddp_model):
        check_sharding(ddp_model)
    if sampler is not None:
        group = group_of(ddp_model)
        ranks, rank = dist.get_world_size(group), dist.get_rank(group)
        if len(sampler.samples_per_rank) != ranks:
            raise ValueError(
                f"samples_per_rank has {len(sampler.samples_per_rank)} entries, the model's process "
                f"group has {ranks} ranks"
            )
        if sampler.rank != rank:
            raise ValueError(f"the sampler is that of rank {sampler.rank}, this is rank {rank}")
    for hook in ddp_model._forward_pre_hooks.values():
        if isinstance(hook, _Entry) and hook.weights._model is ddp_model:
            hook.weights._sampler = sampler
            return hook.weights
    return GradientWeights(ddp_model, sampler)
