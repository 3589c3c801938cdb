"""Runners whose processes load only the samples that their own ranks read."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import Sampler

from heterog.base.errors import InputError


class ShareSampler(Sampler[list[int]]):
    """Batches of indices for one process of a runner: of each whole batch, the samples that its
    ranks read. The `batch_sampler` of a DataLoader whose batches runner.step_local takes:

        sampler = heterog.ShareSampler(dataset, runner, shuffle=True)
        for batch in DataLoader(dataset, batch_sampler=sampler):
            runner.step_local(batch)

    dataset_or_length  a dataset with a length, or the length
    runner             made by get_runner, in this process
    shuffle, seed      the order of the samples, another one each epoch (`set_epoch`), the same in
                       all processes
    drop_last          leave out the last batch if it is not whole; else give its number of samples
                       to step_local: `samples=sampler.samples(number)`

    A process whose ranks read no data is handed the first sample of each batch all the same, since a
    DataLoader cannot make a batch of nothing; step_local leaves it aside.
    """

    def __init__(
        self,
        dataset_or_length: Any,
        runner: Any,
        *,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = True,
    ):
        whole = isinstance(dataset_or_length, int) and not isinstance(dataset_or_length, bool)
        if not whole and not hasattr(dataset_or_length, "__len__"):
            raise InputError(
                f"dataset_or_length: {type(dataset_or_length).__name__} has no length; batches are "
                "cut from a dataset whose length is known"
            )
        self.length: int = dataset_or_length if whole else len(dataset_or_length)
        self.batch: int = runner.batch
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.epoch = 0
        self._runner = runner
        if len(self) == 0:
            raise InputError(
                f"dataset_or_length: {self.length} samples make no batch of {self.batch}; give more "
                "samples, or a plan for fewer"
            )

    def set_epoch(self, epoch: int) -> None:
        """Which order the next iteration takes; call it in every process before each epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        """Batches of an epoch, the same in every process."""
        whole, rest = divmod(self.length, self.batch)
        return whole + (rest > 0 and not self.drop_last)

    def samples(self, number: int) -> int:
        """How many samples whole batch `number` of an epoch has."""
        if not 0 <= number < len(self):
            raise InputError(f"number: {number}; an epoch has batches 0 to {len(self) - 1}")
        return min(self.batch, self.length - number * self.batch)

    def __iter__(self) -> Iterator[list[int]]:
        order = self._order()
        for number in range(len(self)):
            start = number * self.batch
            rows = self._runner.own_samples(self.samples(number))
            own = [order[start + row] for begin, end in rows for row in range(begin, end)]
            yield own or [order[start]]

    def _order(self) -> list[int]:
        if not self.shuffle:
            return list(range(self.length))
        generator = torch.Generator()
        generator.manual_seed(self.seed + self.epoch)
        return torch.randperm(self.length, generator=generator).tolist()


def spread(
    value: torch.Tensor, rows: list[tuple[int, int]], axis: int, shape: list[int]
) -> torch.Tensor:
    """A tensor of this shape that holds the rows of `value` along the axis, one range after another,
    where they belong. The others are zeros, which nobody reads."""
    whole = torch.zeros(shape, dtype=value.dtype, device=value.device)
    taken = 0
    for begin, end in rows:
        count = end - begin
        whole.narrow(axis, begin, count).copy_(value.narrow(axis, taken, count))
        taken += count
    return whole
