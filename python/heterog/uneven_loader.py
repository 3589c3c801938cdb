"""A DataLoader's batches, dealt out in unequal shares: built from the loader of an even script."""

import copy
from collections.abc import Callable, Iterator

import torch
from torch.utils._pytree import tree_map
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)

from heterog.uneven import UnevenBatchSampler
from heterog.weighing import SAMPLES

# What is told to a DataLoader beside its data and their order.
OPTIONS = (
    "num_workers collate_fn pin_memory timeout worker_init_fn multiprocessing_context generator "
    "prefetch_factor persistent_workers"
).split()


class LikeSampler(UnevenBatchSampler):
    """An UnevenBatchSampler in the order of another loader's sampler.

    A DistributedSampler's seed and epoch are read as they are at the time, so that its set_epoch
    goes on working. A RandomSampler is shuffled anew each time, by `seed`.
    """

    def __init__(self, loader: DataLoader, batch: int, ranks: int, rank: int, seed: int = 0):
        self.sampler = loader.sampler
        self._follows = _is_distributed(self.sampler)
        self._own = {"seed": seed, "epoch": 0, "shuffle": isinstance(self.sampler, RandomSampler)}
        self._begun = False
        self.ranks = ranks
        if batch < ranks:
            raise ValueError(f"batch: {batch} samples for {ranks} ranks; each needs at least 1")
        even = [batch // ranks + (rank < batch % ranks) for rank in range(ranks)]
        super().__init__(loader.dataset, even, rank, seed=seed, drop_last=loader.drop_last)
        if self.length < batch:
            raise ValueError(f"batch: {batch} samples, but the dataset has {self.length}")

    def set_epoch(self, epoch: int) -> None:
        """As that of the other sampler."""
        self.epoch = epoch
        self._begun = False
        if self._follows:
            self.sampler.set_epoch(epoch)

    def __iter__(self) -> Iterator[list[int]]:
        if self._begun and not self._follows:
            self.epoch += 1  # a RandomSampler needs no set_epoch
        self._begun = True
        return super().__iter__()

    def _look_up(self, name):
        return getattr(self.sampler, name) if self._follows else self._own[name]

    def _set(self, name, value):
        self._own[name] = value

    seed = property(lambda self: self._look_up("seed"), lambda self, v: self._set("seed", v))
    epoch = property(lambda self: self._look_up("epoch"), lambda self, v: self._set("epoch", v))
    # What the other sampler says; UnevenBatchSampler's default is not.
    shuffle = property(lambda self: self._look_up("shuffle"), lambda self, v: None)


class UnevenLoader:
    """Iterates as the loader that it was made of, over this rank's part of each global batch, and
    sets the weight of each. Made by `heterog.auto_shares`, whose findings are in `found`."""

    def __init__(self, inner: DataLoader, wrapped: Callable, sampler: LikeSampler, device=None):
        self.sampler = sampler
        self.dataset = inner.dataset
        self.weights = None  # of gradients; none in one process
        self.weighing = SAMPLES  # by what ranks are weighed
        self.found = None  # what auto_shares measured
        self.balance = None  # what compares the ranks while they train
        self._inner = inner
        self._wrapped = wrapped
        self._device = device
        self._batches = self._over(sampler)
        self._begin = self.begin_now

    @property
    def samples_per_rank(self) -> list[int]:
        """Of the batches to come."""
        return self.sampler.newest_shares

    @property
    def asked_ahead(self) -> int:
        """How many batches after the one that is iterated over may have been drawn already: those
        that worker processes have been asked for, and one that what wraps the loader may hold."""
        return 2 + self._inner.num_workers * (self._inner.prefetch_factor or 0)

    def __len__(self) -> int:
        return len(self.sampler)

    def set_epoch(self, epoch: int) -> None:
        self.sampler.set_epoch(epoch)

    def __iter__(self) -> Iterator:
        for number, batch in enumerate(self._batches):
            self._begin(number, batch)  # where it was made: a count of it waits for no GPU
            yield self._moved(batch)

    def begin_later(self, drawn: Callable[[int, object], None]) -> None:
        """For loops that draw several batches before they compute the first: tells the number of
        each as it is drawn, and leaves it to the caller to `begin_now`."""
        self._begin = drawn

    def begin_now(self, number: int, batch) -> None:
        """Batch `number` is computed next."""
        if self.balance is not None:
            self.balance.before(number)
        if self.weights is not None:
            self.weighing.start(self.weights, number, batch)

    def samples_of(self, rows: list[int]) -> list:
        """Samples as the dataset gives them."""
        if getattr(self.dataset, "__getitems__", None):
            return list(self.dataset.__getitems__(rows))
        return [self.dataset[row] for row in rows]

    def batch_of(self, samples: list):
        """One batch of these samples, made in this process."""
        rows = [list(range(len(samples)))]
        return next(iter(map(self._moved, self._over(rows, dataset=samples, **self._alone()))))

    def batches_of(self, order: list[list[int]]) -> Iterator:
        """Batches of these samples, made in this process."""
        return map(self._moved, self._over(order, **self._alone()))

    def _alone(self) -> dict:
        """Options of a loader without worker processes; the script's own generator is not drawn
        from."""
        alone = {"num_workers": 0, "prefetch_factor": None, "persistent_workers": False, "timeout": 0}
        return alone | {"generator": torch.Generator()}

    def _over(self, batch_sampler, dataset=None, **options):
        """The loader that this one is made of, with other batches."""
        kept = {name: getattr(self._inner, name) for name in OPTIONS} | options
        data = self.dataset if dataset is None else dataset
        return self._wrapped(DataLoader(data, batch_sampler=batch_sampler, **kept))

    def _moved(self, batch):
        if self._device is None:
            return batch
        if hasattr(batch, "to"):
            return batch.to(self._device)
        return tree_map(lambda x: x.to(self._device) if hasattr(x, "to") else x, batch)


def inner_loader(loader) -> tuple[DataLoader, Callable]:
    """The DataLoader, and a function that puts another into what it is wrapped in: the loaders of
    Fabric and timm wrap one."""
    if isinstance(loader, DataLoader):
        return loader, lambda other: other
    for name in ("_dataloader", "loader"):
        inner = getattr(loader, name, None)
        if isinstance(inner, DataLoader):

            def wrapped(other, name=name):
                outer = copy.copy(loader)
                setattr(outer, name, other)
                return outer

            return inner, wrapped
    raise ValueError(f"loader: {type(loader).__name__}; give a torch.utils.data.DataLoader")


def check_loader(loader: DataLoader) -> None:
    """Refuses what no share can be cut from."""
    if isinstance(loader.dataset, IterableDataset):
        raise ValueError(
            "loader: its dataset is an IterableDataset; shares are cut from one with a length"
        )
    if hasattr(loader, "base_dataloader"):
        raise ValueError(
            "loader: Accelerate's prepare() has dealt it out to the ranks already; leave it out of "
            "prepare() and pass device=accelerator.device"
        )
    if type(loader.batch_sampler) is not BatchSampler:
        raise ValueError(
            f"loader: its batches come from {type(loader.batch_sampler).__name__}; expected a "
            "loader with a batch_size"
        )
    sampler = loader.sampler
    if isinstance(sampler, RandomSampler):
        known = not sampler.replacement and sampler.num_samples == len(loader.dataset)
    else:
        known = isinstance(sampler, SequentialSampler) or _is_distributed(sampler)
    if not known:
        raise ValueError(
            f"loader: its sampler is a {type(sampler).__name__}, whose order is its own; expected "
            "shuffle=True or False, or a DistributedSampler"
        )


def _is_distributed(sampler) -> bool:
    # Not a subclass that changes the order.
    return (
        isinstance(sampler, DistributedSampler)
        and type(sampler).__iter__ is DistributedSampler.__iter__
    )
