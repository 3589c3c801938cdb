"""Gradients of DistributedDataParallel that count by samples and not by ranks, exactly."""

from collections.abc import Iterable, Iterator

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join, Joinable, JoinHook
from torch.nn.parallel import DistributedDataParallel

from heterog.output_weights import weigh_outputs
from heterog.process_end import released_before_the_end
from heterog.uneven import UnevenBatchSampler


class GradientWeights(Joinable):
    """How much this rank's gradients count in each step; made by `weighted_gradients`.

    Every backward pass of the model needs the weight of its batch first, from `batches` or from
    `start`. Passes under no_sync() leave gradients in the parameters that are multiplied once, by
    the weight of the pass that is communicated; where weights differ between the batches that are
    accumulated, `start` brings what is there to the new one.
    """

    def __init__(self, ddp_model, sampler: UnevenBatchSampler | None):
        super().__init__()
        self._model = ddp_model
        self._group = ddp_model.process_group
        self._sampler = sampler
        self._device = ddp_model.device
        self.scale = 1  # what each rank's loss has been multiplied by already
        self._share: float | torch.Tensor | None = None  # of this rank in the global batch
        self._waiting = None  # the sum of counts that is still on its way
        self._fresh = False  # no communicated backward pass has used the share yet
        self._carried: float | None = None  # what gradients are multiplied by, if not the share
        self._muted: list = []  # hooks of parameters that keep out a batch without weight
        self._joined = False  # this rank has no batches left, in the context of `join`
        self._at_outputs = _synchronised_norm(ddp_model) is not None
        self.on_reduced = None  # called when the last bucket of a backward pass is ready
        if self._at_outputs:
            weigh_outputs(ddp_model, lambda: self.share * dist.get_world_size(self._group))
        ddp_model.register_comm_hook(None, self._hook)

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
        own, total = self.sizes(number)
        self.start(own, total=total)

    def sizes(self, number: int) -> tuple[int, int]:
        """Samples of this rank and of all in batch `number` of the sampler's epoch."""
        sizes = self._sampler.sizes(number)
        if self._at_outputs and 0 in sizes:
            raise ValueError(
                f"batch {number} has {sum(sizes)} samples, and none for rank {sizes.index(0)}, "
                "whose stand-in would enter the statistics of SyncBatchNorm: leave the last batch "
                "out (drop_last=True)"
            )
        return sizes[self._sampler.rank], sum(sizes)

    def start(self, count, total=None) -> None:
        """Sets the weight of the next backward pass.

        count  what this rank's loss is a mean over: samples, or tokens that are not ignored; a
               number or a tensor with one element, 0 if the rank has none
        total  the same over all ranks; if not given, the ranks add theirs up, while forward runs

        Where no rank has any, each keeps the gradient that its loss gives for nothing (0 from
        cross_entropy, NaN from a quotient by 0), as one process would.
        """
        self._unmute()
        Join.notify_join_context(self)
        before = self._applied() if self._fresh and not self._at_outputs else None
        if total is not None and not self._join_config.enable:
            share = self._quotient(count, total)
        else:
            share = None
        if share is None:
            own = _scalar(count, self._device)
            whole = own.clone()
            work = dist.all_reduce(whole, group=self._group, async_op=True)
            self._waiting = (work, own, whole)
            if before is not None:  # accumulated: gradients wait for the factor
                share = self.share
        self._fresh = True
        self._carried = None
        self._share = share
        if before is not None:
            self._carry(float(before), float(share))

    @property
    def share(self) -> float | torch.Tensor:
        """This rank's count over that of all ranks, of the last batch that was started."""
        if self._waiting is not None:
            work, own, whole = self._waiting
            work.wait()
            self._waiting = None
            self._share = self._quotient(own, whole)
        if self._share is None:
            raise RuntimeError(
                "no batch has been started: iterate over batches(loader), or call start(count) "
                "before the backward pass"
            )
        return self._share

    def loss(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss of the global batch, from the mean that each rank has; on every rank, without
        gradient. All ranks must call it."""
        whole = _weigh(loss.detach().clone(), self.share)
        dist.all_reduce(whole, group=self._group)
        return whole

    def join(self, **options) -> Join:
        """In place of `ddp_model.join()`, where ranks have different numbers of batches: those that
        have none left count 0. Batches then need `start(count)`; `total` is of no use."""
        return Join([self, self._model], **options)

    def _quotient(self, count, total):
        alone = 1 / dist.get_world_size(self._group) / self.scale
        if isinstance(count, torch.Tensor) or isinstance(total, torch.Tensor):
            count, total = _scalar(count, self._device), _scalar(total, self._device)
            return torch.where(total == 0, alone, count / total / self.scale)
        if not 0 <= count <= total:
            raise ValueError(f"start: count {count} of total {total}; expected 0 ≤ count ≤ total")
        return count / total / self.scale if total > 0 else alone

    def _applied(self) -> float | torch.Tensor:
        """What buckets are multiplied by before they are summed."""
        return self.share if self._carried is None else self._carried

    def _carry(self, before: float | torch.Tensor, share: float) -> None:
        """Gradients that passes under no_sync() left, to be multiplied by `before`, and those of
        the batch that begins, by `share`, are communicated together: with one factor."""
        if before == share:
            return
        parameters = [p for p in self._model.parameters() if p.requires_grad]
        if share == 0:
            # Nothing of this batch counts; what is there keeps its factor.
            self._carried = before
            self._muted = [p.register_hook(torch.zeros_like) for p in parameters]
            return
        with torch.no_grad():
            for parameter in parameters:
                if parameter.grad is not None:
                    _weigh(parameter.grad, before / share)

    def _unmute(self) -> None:
        for handle in self._muted:
            handle.remove()
        self._muted = []

    def _hook(self, _state, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        if self._joined:
            buffer = bucket.buffer().zero_()
        elif not self._fresh:
            raise RuntimeError(
                "this backward pass has no weight: iterate over batches(loader), or call "
                "start(count) before each backward pass; where ranks have different numbers of "
                "batches, use join() of the weights"
            )
        elif self._at_outputs:  # each loss counts ranks × share already
            buffer = bucket.buffer().div_(dist.get_world_size(self._group))
        else:
            buffer = _weigh(bucket.buffer(), self._applied())
        if bucket.is_last() and not self._joined:
            self._fresh = False
            if self.on_reduced is not None:
                self.on_reduced()
        work = dist.all_reduce(buffer, group=self._group, async_op=True)
        return work.get_future().then(released_before_the_end(lambda done: done.value()[0]))

    def join_hook(self, **_options) -> JoinHook:
        return _NothingLeft(self)

    @property
    def join_device(self) -> torch.device:
        return self._model.join_device

    @property
    def join_process_group(self):
        return self._model.join_process_group


class _NothingLeft(JoinHook):
    """What a rank without batches does in the steps of the others, before what the model does: it
    adds nothing to their count."""

    def __init__(self, weights: GradientWeights):
        self.weights = weights

    def main_hook(self) -> None:
        weights = self.weights
        weights._joined = True
        dist.all_reduce(_scalar(0, weights._device), group=weights._group)

    def post_hook(self, is_last_joiner: bool) -> None:
        self.weights._joined = False


def _weigh(values: torch.Tensor, share: float | torch.Tensor) -> torch.Tensor:
    """Times the share, in place. What has no share is 0 even where it is NaN: a mean over
    nothing."""
    if isinstance(share, torch.Tensor):
        return values.mul_(share).masked_fill_(share == 0, 0)
    return values.zero_() if share == 0 else values.mul_(share)


def _scalar(value, device) -> torch.Tensor:
    return torch.as_tensor(value).detach().to(device, torch.float64, copy=True).reshape(())


def _synchronised_norm(ddp_model) -> str | None:
    """The name of a layer that adds up the ranks' gradients in its backward pass."""
    for name, module in ddp_model.module.named_modules():
        if isinstance(module, torch.nn.SyncBatchNorm):
            return name
    return None


def weighted_gradients(ddp_model, sampler: UnevenBatchSampler | None = None) -> GradientWeights:
    """Makes a DistributedDataParallel model sum its ranks' gradients by how much each rank has of
    the batch, in place of their plain mean: for a loss that is a mean, the result is the gradient
    of the mean over the global batch, exactly, whatever the sizes.

    Registers a communication hook; call it once, after wrapping the model and before the first
    backward pass. With a sampler, take the batches from `.batches(loader)`; for a mean over
    something other than samples (tokens that are not ignored), leave the sampler out and call
    `.start(count)` before each backward pass. A model with SyncBatchNorm is weighed at its outputs
    in place of its gradients: output_weights.py says why, and what it refuses.
    """
    if not isinstance(ddp_model, DistributedDataParallel):
        raise ValueError(
            f"ddp_model: {type(ddp_model).__name__}; wrap the model in DistributedDataParallel first"
        )
    if sampler is not None:
        ranks = dist.get_world_size(ddp_model.process_group)
        rank = dist.get_rank(ddp_model.process_group)
        if len(sampler.samples_per_rank) != ranks:
            raise ValueError(
                f"samples_per_rank has {len(sampler.samples_per_rank)} entries, the model's process "
                f"group has {ranks} ranks"
            )
        if sampler.rank != rank:
            raise ValueError(f"the sampler is that of rank {sampler.rank}, this is rank {rank}")
    return GradientWeights(ddp_model, sampler)
