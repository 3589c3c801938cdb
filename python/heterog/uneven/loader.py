"""A DataLoader's batches, dealt out in unequal shares: built from the loader of an even script."""

import copy
import itertools
from collections.abc import Callable, Iterator

import torch
from torch.utils._pytree import tree_map
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    get_worker_info,
)

from heterog.uneven.accumulated import OwnSteps, known_to_accelerate
from heterog.uneven.deals import cut
from heterog.uneven.fair_shares import in_passes
from heterog.uneven.sampler import UnevenBatchSampler
from heterog.uneven.weighing import SAMPLES

# What is told to a DataLoader beside its data and their order.
OPTIONS = (
    "num_workers collate_fn pin_memory timeout worker_init_fn multiprocessing_context generator "
    "prefetch_factor persistent_workers"
).split()


class LikeSampler(UnevenBatchSampler, DistributedSampler):
    """An UnevenBatchSampler in the order of another loader's sampler.

    A DistributedSampler's seed and epoch are read as they are at the time, so that its set_epoch
    goes on working. A RandomSampler is shuffled anew each time, by `seed`. It is a
    DistributedSampler to frameworks, which would put one in its place otherwise.

    parts       micro-batches of a rank, whose gradients are accumulated, in an even step; the global
                batch is that of all of them
    even_micro  samples of a micro-batch then; None where a rank has one batch a step
    """

    def __init__(
        self, loader: DataLoader, batch: int, ranks: int, rank: int, seed: int = 0, parts: int = 1
    ):
        self.sampler = loader.batch_sampler.sampler
        self.dataset = loader.dataset
        self._follows = _is_distributed(self.sampler)
        self._own_order = {"seed": seed, "epoch": 0, "shuffle": isinstance(self.sampler, RandomSampler)}
        self._used = False
        self.ranks = self.num_replicas = ranks
        if batch < ranks * parts:
            each = "each needs at least 1" if parts == 1 else f"each needs at least {parts}, to accumulate"
            raise ValueError(f"batch: {batch} samples for {ranks} ranks; {each}")
        even = [batch // ranks + (rank < batch % ranks) for rank in range(ranks)]
        self.parts = parts
        self.even_micro = None if parts == 1 else -(-max(even) // parts)
        self._micro = [(0, self.even_micro)]  # within this epoch: from which batch on
        self.least = 1  # samples of a micro-batch
        self.whole_epochs = False  # shares change between epochs alone
        self.together = False  # all ranks have as many micro-batches, since they meet in each
        drop_last = loader.batch_sampler.drop_last
        super().__init__(loader.dataset, even, rank, seed=seed, drop_last=drop_last)
        if self.length < batch:
            raise ValueError(f"batch: {batch} samples, but the dataset has {self.length}")

    def set_epoch(self, epoch: int) -> None:
        """As that of the other sampler."""
        self.epoch = epoch
        self._used = False
        if self._follows:
            self.sampler.set_epoch(epoch)

    @property
    def least_of_step(self) -> int:
        """Samples of a rank in all of its micro-batches."""
        each = self.together and self.least > 1  # else a stand-in does
        return self.least * self.parts if each else self.least

    def __iter__(self) -> Iterator[list[int]]:
        if self._used and not self._follows:
            self.epoch += 1  # a RandomSampler needs no set_epoch
        self._used = True
        order = self._begun()
        for batch in range(self.global_batches):
            own = self._own(order, batch)
            begin = 0
            for size in self.micro_sizes(batch):
                yield own[begin : begin + size] or own[:1]
                begin += size

    def between_epochs(self) -> None:
        super().between_epochs()
        self._micro = [(0, self._micro[-1][1])]

    def __len__(self) -> int:
        """Batches that this rank draws in an epoch."""
        if self.parts == 1:
            return self.global_batches
        return sum(len(self.micro_sizes(batch)) for batch in range(self.global_batches))

    def micro_sizes(self, batch: int) -> list[int]:
        """How many samples this rank's batches of one global batch have; 0 where it has none."""
        own = self.sizes(batch)[self.rank]
        if self.together:
            return in_passes(own, self.parts)
        micro = [micro for first, micro in self._micro if first <= batch][-1]
        return [own] if micro is None else cut(own, micro, self.least)

    def change_micro(self, micro: int | None, batch: int = 0) -> None:
        """Other micro-batches of this rank, from global batch `batch` of this epoch on."""
        self._micro.append((batch, micro))

    num_samples = property(lambda self: self.length // self.ranks)
    total_size = property(lambda self: self.length)

    def _look_up(self, name):
        return getattr(self.sampler, name) if self._follows else self._own_order[name]

    def _set(self, name, value):
        self._own_order[name] = value

    seed = property(lambda self: self._look_up("seed"), lambda self, v: self._set("seed", v))
    epoch = property(lambda self: self._look_up("epoch"), lambda self, v: self._set("epoch", v))
    # What the other sampler says; UnevenBatchSampler's default is not.
    shuffle = property(lambda self: self._look_up("shuffle"), lambda self, v: None)


class UnevenLoader(DataLoader):
    """Iterates as the loader that it was made of, over this rank's part of each global batch, and
    sets the weight of each. Made by `heterog.auto_shares`, whose findings are in `found`.

    Who builds another DataLoader of its parts (Accelerate's skip_first_batches) has weights too:
    its batch sampler and collate function tell what is drawn.
    """

    def __init__(self, inner: DataLoader, wrapped: Callable, sampler: LikeSampler, device=None):
        self.original = inner
        told = _ToldBatches(self, sampler)
        kept = {name: getattr(inner, name) for name in OPTIONS}
        options = kept | {"collate_fn": _ToldCollate(self, inner.collate_fn)}
        super().__init__(inner.dataset, batch_sampler=told, **options)
        self.__dict__["sampler"] = sampler
        self.weights = None  # of gradients; none in one process
        self.models = []  # the weights of each model
        self.drawn = None  # which batch a pass is of
        self.weighing = SAMPLES  # by what ranks are weighed
        self.found = None  # what auto_shares measured
        self.balance = None  # what compares the ranks while they train
        self.last = True  # the update comes after the batch that was drawn last
        self.end_of_dataloader, self.remainder = False, -1  # read by Accelerate
        self._kept = kept
        self._wrapped = wrapped
        self._device = device
        self._batches = self._over(sampler)

    @property
    def samples_per_rank(self) -> list[int]:
        """Of the batches to come."""
        return self.sampler.newest_shares

    @property
    def asked_ahead(self) -> int:
        """How many batches after the one that is iterated over may have been drawn already: those
        that worker processes have been asked for, and one that what wraps the loader may hold."""
        return 2 + self.num_workers * (self.prefetch_factor or 0)

    @property
    def accumulated(self) -> OwnSteps:
        """For a loop that counts batches to accumulate them, in place of their number. From then on,
        shares change between epochs alone: such a loop asks once how many batches there are."""
        self.sampler.whole_epochs = True
        return OwnSteps(self.sampler)

    def __len__(self) -> int:
        return len(self.sampler)

    def __getattr__(self, name):
        """What a loader that wraps another has beside it (timm's mixup_enabled)."""
        if name.startswith("__") or "_batches" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.__dict__["_batches"], name)

    def __setattr__(self, name, value):
        outer = self.__dict__.get("_batches")
        if isinstance(getattr(type(outer), name, None), property):
            setattr(outer, name, value)
        else:
            super().__setattr__(name, value)

    def set_epoch(self, epoch: int) -> None:
        self.sampler.set_epoch(epoch)

    def __iter__(self) -> Iterator:
        self.begin_epoch()
        last_step = self.sampler.global_batches - 1
        with known_to_accelerate(self) as told:
            for number, batches in self.steps():
                parts = self.sampler.parts
                if parts > 1 and told(len(batches)):
                    parts = len(batches)
                weights = self.begin(number, batches, parts)
                for place, batch in enumerate(batches):
                    self.last = place == len(batches) - 1
                    self.end_of_dataloader = self.last and (parts > 1 or number == last_step)
                    yield self._given(batch, weights[place])

    def steps(self) -> Iterator[tuple[int, list]]:
        """The number of each global batch, and this rank's batches of it: one, or the micro-batches
        that it accumulates."""
        batches = iter(self._batches)
        for number in range(self.sampler.global_batches):
            first = next(batches)  # an epoch begins, at its shares, when its first batch is drawn
            more = len(self.sampler.micro_sizes(number)) - 1
            yield number, [first, *itertools.islice(batches, more)]
        next(batches, None)  # worker processes are told that the epoch has ended
        self.sampler.between_epochs()

    def begin_epoch(self) -> None:
        if self.drawn is not None:
            self.drawn.begin_epoch()

    def begin(self, number: int, batches: list, parts: int = 1) -> list:
        """Global batch `number` is computed next; the weights of this rank's batches of it, which
        are as they were made: a count of them waits for no GPU."""
        if self.balance is not None:
            self.balance.before(number)
        if self.weights is None:
            return [None] * len(batches)
        sizes = self.sampler.sizes(number)
        self.weights.check_sizes(number, sizes)
        own = self.sampler.micro_sizes(number)
        return self.weighing.weights(self.weights, own, sum(sizes), batches, parts)

    def told(self, number: int, batch):
        """What another DataLoader of this one's parts has made of global batch `number`."""
        return self._given(batch, self.begin(number, [batch])[0])

    def _given(self, batch, weight):
        moved = self._moved(batch)
        if self.drawn is not None:
            self.drawn.add(weight, (batch, moved), self.last)
        return moved

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
        data = self.dataset if dataset is None else dataset
        return self._wrapped(DataLoader(data, batch_sampler=batch_sampler, **self._kept | options))

    def _moved(self, batch):
        if self._device is None:
            return batch
        if hasattr(batch, "to"):
            return batch.to(self._device)
        return tree_map(lambda x: x.to(self._device) if hasattr(x, "to") else x, batch)


class _ToldBatches(Sampler[list[int]]):
    """The batch sampler of a loader for whoever builds another of its parts: knows which batch it
    gave last."""

    def __init__(self, loader: UnevenLoader, sampler: LikeSampler):
        self.sampler = sampler
        self.batch_size, self.drop_last = sampler.samples_per_rank[sampler.rank], sampler.drop_last
        self._loader = loader
        self.number = 0

    def __len__(self) -> int:
        return len(self.sampler)

    def set_epoch(self, epoch: int) -> None:
        self.sampler.set_epoch(epoch)

    def __iter__(self) -> Iterator[list[int]]:
        if self.sampler.parts > 1:
            raise ValueError(
                "accumulate: another loader was made of the parts of auto_shares' one (by "
                "skip_first_batches?), which cannot say where the accumulated batches end: iterate "
                "over the loader itself"
            )
        self._loader.begin_epoch()
        for self.number, rows in enumerate(self.sampler):
            yield rows


class _ToldCollate:
    """The collate function beside it: says what the batch became."""

    def __init__(self, loader: UnevenLoader, collate: Callable):
        self._loader = loader
        self._collate = collate

    def __call__(self, samples: list):
        batch = self._collate(samples)
        if not self._weighed():
            return batch
        if get_worker_info() is not None:
            raise ValueError(
                "num_workers: another loader was made of the parts of auto_shares' one (by "
                "skip_first_batches?), and its worker processes cannot tell which batch is computed: "
                "give that one num_workers=0"
            )
        return self._loader.told(self._loader.batch_sampler.number, batch)

    def _weighed(self) -> bool:
        return self._loader is True or bool(self._loader and self._loader.weights)

    def __getstate__(self) -> dict:
        """For a worker process, which cannot be sent the loader: whether batches have weights."""
        return {"_loader": self._weighed(), "_collate": self._collate}

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__dict__["_collate"], name)


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
    sampler = loader.batch_sampler.sampler
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
