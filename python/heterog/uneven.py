"""Plain DistributedDataParallel on unequal shares of the batch, exact: which samples a rank takes,
and gradients weighted by them."""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import Sampler

from heterog.given import FilePath


def read_shares(path) -> list[int]:
    """Samples of each rank, from the file that `heterog shares --out` writes."""
    with open(path, encoding="utf-8") as file:
        try:
            found = json.load(file)
        except ValueError as error:
            raise ValueError(f"{path}: not JSON ({error})") from error
    if not isinstance(found, dict) or found.get("format") != "heterog-shares":
        raise ValueError(f"{path}: format: expected heterog-shares, as `heterog shares` writes it")
    if found.get("version") != 1:
        raise ValueError(f"{path}: version: {found.get('version')!r}, expected 1")
    if "samples_per_rank" not in found:
        raise ValueError(f"{path}: samples_per_rank is missing")
    return _checked_shares(found["samples_per_rank"], f"{path}: samples_per_rank")


def _checked_shares(samples, source: str) -> list[int]:
    if not isinstance(samples, Sequence) or isinstance(samples, str) or not samples:
        raise ValueError(f"{source}: {samples!r}; give a list of whole numbers, one a rank")
    for rank, count in enumerate(samples):
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise ValueError(f"{source}[{rank}]: {count!r}; expected a whole number of samples")
        if count == 0:
            raise ValueError(
                f"{source}[{rank}]: rank {rank} gets no samples in any batch: start no process for "
                "it, and leave it out of the list"
            )
    return list(samples)


def split_by_shares(count: int, shares: Sequence[int]) -> list[int]:
    """`count` samples in proportion to the shares, by largest remainder; ties: the earlier rank."""
    total = sum(shares)
    sizes = [count * share // total for share in shares]
    order = sorted(range(len(shares)), key=lambda rank: (-(count * shares[rank] % total), rank))
    for rank in order[: count - sum(sizes)]:
        sizes[rank] += 1
    return sizes


class UnevenBatchSampler(Sampler[list[int]]):
    """Batches of indices for one rank: a slice of each global batch, its size by rank.

    dataset_or_length  a dataset with a length, or the length
    samples_per_rank   samples of each rank in a global batch, or the file of `heterog shares --out`
    rank               this process's; by default torch.distributed's
    shuffle, seed      the order of the samples, another one each epoch (`set_epoch`), the same on
                       all ranks
    drop_last          leave out the last batch if it is not whole

    Put together in the order of the ranks, the slices of a batch are the global batch. The last one
    is split in the same proportion. A rank that gets nothing of it is handed one sample of the
    batch nevertheless, because DistributedDataParallel waits for every rank; `sizes` says 0, and
    `weighted_gradients` leaves that sample out.
    """

    def __init__(
        self,
        dataset_or_length: Any,
        samples_per_rank: Sequence[int] | FilePath,
        rank: int | None = None,
        *,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
    ):
        self.length = _length(dataset_or_length)
        if isinstance(samples_per_rank, Sequence) and not isinstance(samples_per_rank, str):
            self.samples_per_rank = _checked_shares(samples_per_rank, "samples_per_rank")
        else:
            self.samples_per_rank = read_shares(samples_per_rank)
        self.rank = dist.get_rank() if rank is None else rank
        ranks = len(self.samples_per_rank)
        if not 0 <= self.rank < ranks:
            raise ValueError(f"rank: {self.rank}; samples_per_rank has ranks 0 to {ranks - 1}")
        self.batch = sum(self.samples_per_rank)
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.epoch = 0
        if len(self) == 0:
            raise ValueError(
                f"{self.length} samples make no batch of {self.batch}: give more samples, or a "
                "smaller batch"
            )

    def set_epoch(self, epoch: int) -> None:
        """Which order the next iteration takes; call it on every rank before each epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        """Batches of an epoch, the same on every rank."""
        if self.drop_last:
            return self.length // self.batch
        return math.ceil(self.length / self.batch)

    def sizes(self, batch: int) -> list[int]:
        """How many samples each rank has of global batch number `batch`."""
        if not 0 <= batch < len(self):
            raise ValueError(f"batch {batch}: an epoch has batches 0 to {len(self) - 1}")
        count = min(self.batch, self.length - batch * self.batch)
        return split_by_shares(count, self.samples_per_rank)

    def __iter__(self) -> Iterator[list[int]]:
        order = self._order()
        for batch in range(len(self)):
            sizes = self.sizes(batch)
            start = batch * self.batch
            begin = start + sum(sizes[: self.rank])
            own = order[begin : begin + sizes[self.rank]]
            yield own or order[start : start + 1]

    def _order(self) -> list[int]:
        if not self.shuffle:
            return list(range(self.length))
        generator = torch.Generator()
        generator.manual_seed(self.seed + self.epoch)
        return torch.randperm(self.length, generator=generator).tolist()


def _length(dataset_or_length) -> int:
    if isinstance(dataset_or_length, bool):
        raise ValueError("dataset_or_length: a truth value; give a dataset or its length")
    if isinstance(dataset_or_length, int):
        length = dataset_or_length
    else:
        try:
            length = len(dataset_or_length)
        except TypeError as error:
            raise ValueError(
                f"dataset_or_length: {type(dataset_or_length).__name__} has no length; batches are "
                "cut from a dataset whose length is known"
            ) from error
    if length < 1:
        raise ValueError(f"dataset_or_length: {length} samples; give at least 1")
    return length


class GradientWeights:
    """How much this rank's gradients count in each step; made by `weighted_gradients`.

    Every backward pass of the model needs the weight of its batch first, from `batches` or from
    `start`.
    """

    def __init__(self, ddp_model, sampler: UnevenBatchSampler | None):
        self._group = ddp_model.process_group
        self._sampler = sampler
        self._device = ddp_model.device
        self._share: float | torch.Tensor | None = None  # of this rank in the global batch
        self._waiting: tuple | None = None  # the sum of counts that is still on its way
        self._fresh = False  # no backward pass has used the share yet

    def batches(self, loader: Iterable) -> Iterator:
        """The batches of a DataLoader over the sampler, each with its weight set."""
        if self._sampler is None:
            raise RuntimeError("batches: weighted_gradients was given no sampler; pass it, or use "
                               "start(count)")
        if getattr(loader, "batch_sampler", self._sampler) is not self._sampler:
            raise ValueError("batches: the loader's batch_sampler is another than the one given to "
                             "weighted_gradients")
        for number, batch in enumerate(loader):
            sizes = self._sampler.sizes(number)
            self.start(sizes[self._sampler.rank], total=sum(sizes))
            yield batch

    def start(self, count, total=None) -> None:
        """Sets the weight of the next backward pass.

        count  what this rank's loss is a mean over: samples, or tokens that are not ignored; a
               number or a tensor with one element, 0 if the rank has none
        total  the same over all ranks; if not given, the ranks add theirs up, while forward runs

        Where no rank has any, each keeps the gradient that its loss gives for nothing (0 from
        cross_entropy, NaN from a quotient by 0), as one process would.
        """
        if self._fresh:
            raise RuntimeError(
                "start: no backward pass of the model has used the weight of the batch before. To "
                "accumulate gradients over several batches under no_sync(), multiply each loss by "
                "its part of this rank's count, and start once with that count"
            )
        self._fresh = True
        if total is not None:
            self._share = self._quotient(count, total)
            return
        own = _scalar(count, self._device)
        whole = own.clone()
        work = dist.all_reduce(whole, group=self._group, async_op=True)
        self._waiting = (work, own, whole)

    @property
    def share(self) -> float | torch.Tensor:
        """This rank's count over that of all ranks, of the last batch that was started."""
        if self._waiting is not None:
            work, own, whole = self._waiting
            work.wait()
            self._waiting = None
            self._share = self._quotient(own, whole)
        if self._share is None:
            raise RuntimeError("no batch has been started: iterate over batches(loader), or call "
                               "start(count) before the backward pass")
        return self._share

    def loss(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss of the global batch, from the mean that each rank has; on every rank, without
        gradient. All ranks must call it."""
        whole = self._weigh(loss.detach().clone())
        dist.all_reduce(whole, group=self._group)
        return whole

    def _quotient(self, count, total):
        alone = 1 / dist.get_world_size(self._group)
        if isinstance(count, torch.Tensor) or isinstance(total, torch.Tensor):
            count, total = _scalar(count, self._device), _scalar(total, self._device)
            return torch.where(total == 0, alone, count / total)
        if not 0 <= count <= total:
            raise ValueError(f"start: count {count} of total {total}; expected 0 ≤ count ≤ total")
        return count / total if total > 0 else alone

    def _weigh(self, values: torch.Tensor) -> torch.Tensor:
        """Times the share, in place. What has no share is 0 even where it is NaN: a mean over
        nothing."""
        share = self.share
        if isinstance(share, torch.Tensor):
            return values.mul_(share).masked_fill_(share == 0, 0)
        return values.zero_() if share == 0 else values.mul_(share)

    def _hook(self, _state, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        if not self._fresh:
            raise RuntimeError(
                "this backward pass has no weight: iterate over batches(loader), or call "
                "start(count) before each backward pass"
            )
        buffer = self._weigh(bucket.buffer())
        if bucket.is_last():
            self._fresh = False
        work = dist.all_reduce(buffer, group=self._group, async_op=True)
        return work.get_future().then(lambda done: done.value()[0])


def _scalar(value, device) -> torch.Tensor:
    return torch.as_tensor(value).detach().to(device, torch.float64, copy=True).reshape(())


def weighted_gradients(
    ddp_model: torch.nn.parallel.DistributedDataParallel, sampler: UnevenBatchSampler | None = None
) -> GradientWeights:
    """Makes a DistributedDataParallel model sum its ranks' gradients by how much each rank has of
    the batch, in place of their plain mean: for a loss that is a mean, the result is the gradient
    of the mean over the global batch, exactly, whatever the sizes.

    Registers a communication hook; call it once, after wrapping the model and before the first
    backward pass. With a sampler, take the batches from `.batches(loader)`; for a mean over
    something other than samples (tokens that are not ignored), leave the sampler out and call
    `.start(count)` before each backward pass.
    """
    if not isinstance(ddp_model, torch.nn.parallel.DistributedDataParallel):
        raise ValueError(
            f"ddp_model: {type(ddp_model).__name__}; wrap the model in DistributedDataParallel first"
        )
    for name, module in ddp_model.module.named_modules():
        if isinstance(module, torch.nn.SyncBatchNorm):
            raise ValueError(
                f"ddp_model: {name} is a SyncBatchNorm, whose backward pass adds up the ranks' "
                "gradients before they are weighted; multiply each loss by ranks × count / total "
                "instead, and leave the mean of the gradients as it is"
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
    weights = GradientWeights(ddp_model, sampler)
    ddp_model.register_comm_hook(None, weights._hook)
    return weights
