"""Which samples of every batch a rank takes under plain DistributedDataParallel on unequal shares."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import Sampler

from heterog.base.errors import InputError
from heterog.base.given import FilePath
from heterog.base.reading import read_json
from heterog.base.values import as_int, as_list, as_object, check_format, required


def read_shares(path) -> list[int]:
    """Samples of each rank, from the file that `heterog shares --out` writes."""
    found = as_object(read_json(path), f"{path}")
    check_format(found, f"{path}", "heterog-shares", 1)
    where = f"{path}: samples_per_rank"
    samples = as_list(required(found, "samples_per_rank", f"{path}"), where)
    counts = [as_int(count, f"{where}[{rank}]", 0, 1 << 31) for rank, count in enumerate(samples)]
    try:
        return _checked_shares(counts, where)
    except ValueError as error:
        raise InputError(str(error)) from error


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
        self._changes: list[tuple[int, list[int]]] = []  # within this epoch: from which batch on
        ranks = len(self.samples_per_rank)
        if not 0 <= self.rank < ranks:
            raise ValueError(f"rank: {self.rank}; samples_per_rank has ranks 0 to {ranks - 1}")
        self.batch = sum(self.samples_per_rank)
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.epoch = 0
        if self.global_batches == 0:
            raise ValueError(
                f"{self.length} samples make no batch of {self.batch}: give more samples, or a "
                "smaller batch"
            )

    def set_epoch(self, epoch: int) -> None:
        """Which order the next iteration takes; call it on every rank before each epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        """Batches of an epoch, the same on every rank."""
        return self.global_batches

    @property
    def global_batches(self) -> int:
        """Of an epoch."""
        if self.drop_last:
            return self.length // self.batch
        return math.ceil(self.length / self.batch)

    def sizes(self, batch: int) -> list[int]:
        """How many samples each rank has of global batch number `batch`."""
        if not 0 <= batch < self.global_batches:
            raise ValueError(f"batch {batch}: an epoch has batches 0 to {self.global_batches - 1}")
        count = min(self.batch, self.length - batch * self.batch)
        return split_by_shares(count, self.shares_of(batch))

    def shares_of(self, batch: int) -> list[int]:
        """What each rank takes of a whole global batch, at number `batch` of this epoch."""
        shares = self.samples_per_rank
        for first, changed in self._changes:
            if first <= batch:
                shares = changed
        return shares

    @property
    def newest_shares(self) -> list[int]:
        return self._changes[-1][1] if self._changes else self.samples_per_rank

    def change_shares(self, samples_per_rank: Sequence[int], batch: int = 0) -> None:
        """Other shares of the same global batches, from number `batch` of this epoch on; call it
        on every rank, before any rank's loader has asked for that batch."""
        shares = _checked_shares(samples_per_rank, "samples_per_rank")
        if len(shares) != len(self.samples_per_rank) or sum(shares) != self.batch:
            raise ValueError(
                f"samples_per_rank: {shares}; expected {len(self.samples_per_rank)} ranks and "
                f"{self.batch} samples in all"
            )
        self._changes.append((batch, shares))

    def __iter__(self) -> Iterator[list[int]]:
        order = self._begun()
        for batch in range(self.global_batches):
            yield self._own(order, batch)

    def _own(self, order: list[int], batch: int) -> list[int]:
        """This rank's samples of a global batch; one of it where the rank has none."""
        sizes = self.sizes(batch)
        start = batch * self.batch
        begin = start + sum(sizes[: self.rank])
        return order[begin : begin + sizes[self.rank]] or order[start : start + 1]

    def _begun(self) -> list[int]:
        """The order of the samples in the epoch that begins, at the newest shares."""
        self.between_epochs()
        return self._order()

    def between_epochs(self) -> None:
        """No batch of the epoch before is left: the newest shares are those of all to come."""
        self.samples_per_rank = self.newest_shares
        self._changes = []

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
