"""By what the ranks' gradients of a batch are weighed, so that their sum is the gradient of the whole
batch: by samples, by what the loss counts, or as they are, where the loss is a sum."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from heterog.uneven.neutral import LabelLoss, label_count


IGNORED = -100  # labels that PyTorch's losses leave out by default


@dataclass(frozen=True)
class Weighing:
    """`key` names it between ranks; `count` is a function of a batch, of kind "count" alone."""

    key: str
    words: str  # "heterog: weighs ranks by …"
    count: Callable | None = None

    def parts(self, batches, sizes: list[int]) -> list[float] | None:
        """What each of the batches is multiplied by; None: nothing is counted in them."""
        if self.key == "sum":
            return [1.0] * len(sizes)
        counts = sizes if self.count is None else [float(self.count(batch)) for batch in batches]
        total = sum(counts)
        return [count / total for count in counts] if total > 0 and min(counts) >= 0 else None

    def weights(self, weights, sizes: list[int], total: int, batches: list, parts: int) -> list:
        """The weight of each of this rank's batches of a step, of so many samples each: of the
        samples of all ranks `total`. `parts`: how many of them the loss is divided by."""
        if self.key == "sum":
            return weights.weights([1 if size else 0 for size in sizes], 1)
        if self.count is None:
            return weights.weights(sizes, total, parts)
        counts = [self.count(b) if size else 0 for b, size in zip(batches, sizes, strict=True)]
        return weights.weights(counts, None, parts)


SAMPLES = Weighing("samples", "samples")
SUM = Weighing("sum", "plain sum")


def given(count: Callable) -> Weighing:
    """What the user says: a function of a batch to a number or a tensor with one element."""
    return Weighing("count", "what count= says", count)


@dataclass(frozen=True)
class Labels:
    """Counts the labels of one tensor of a batch as a cross entropy does."""

    path: tuple
    shifted: bool  # without the first of each sequence
    ignored: int
    weight: torch.Tensor | None

    def __call__(self, batch) -> torch.Tensor:
        return label_count(_at(batch, self.path, self.shifted), self.weight, self.ignored)

    def words(self) -> str:
        what = "the class weights of the labels" if self.weight is not None else "the labels"
        return f"{what} that count (not {self.ignored}) in {_name(self.path, self.shifted)}"


@dataclass(frozen=True)
class Total:
    """Adds up a tensor of a batch: a mask, or weights of samples."""

    path: tuple
    shifted: bool
    without: int | None  # how many are not this, in place of their sum

    def __call__(self, batch) -> torch.Tensor:
        values = _at(batch, self.path, self.shifted)
        return (values if self.without is None else values != self.without).double().sum()

    def words(self) -> str:
        what = "the sum" if self.without is None else f"what is not {self.without}"
        return f"{what} of {_name(self.path, self.shifted)}"


def known_counts(batch, losses: list[LabelLoss]) -> tuple[list[Weighing], list[Weighing]]:
    """What the mean of a cross entropy that ran on this batch divides by, found in the batch; and
    what else a loss might divide by."""
    certain, possible = [], []
    tensors = list(_tensors(batch))
    for loss in losses:
        for exact in (True, False):
            found = [
                Labels(path, shifted, loss.ignored, loss.weight)
                for path, values in tensors
                for shifted in (False, True)
                if _is_target(values, shifted, loss, exact)
            ]
            if found:
                break
        for count in found:
            weighing = Weighing(count.words(), count.words(), count)
            (certain if loss.is_mean else possible).append(weighing)
    for path, values in tensors:
        for shifted in (False, True) if values.dim() > 1 else (False,):
            for without in _left_out(values):
                total = Total(path, shifted, without)
                possible.append(Weighing(total.words(), total.words(), total))
    return certain, possible


def _left_out(values: torch.Tensor) -> tuple[int | None, ...]:
    """What a mask or labels of this dtype would leave out; None: each counts by its value."""
    if values.dtype == torch.bool:
        return (0,)
    return (0, None) if values.is_floating_point() else (0, None, IGNORED)


def _is_target(values: torch.Tensor, shifted: bool, loss: LabelLoss, exact: bool) -> bool:
    if values.is_floating_point() or values.is_complex() or values.dtype == torch.bool:
        return False
    if shifted and values.dim() < 2:
        return False
    cut = (values[..., 1:] if shifted else values).cpu()
    if not exact:
        counted = loss.count()
        found = label_count(cut, loss.weight, loss.ignored).item()
        return abs(counted - found) <= 1e-6 * counted
    target = loss.target.flatten()
    if shifted:  # shorter, or filled up at its end with a label that is ignored
        filled = torch.nn.functional.pad(cut, (0, 1), value=loss.ignored)
        return torch.equal(cut.flatten(), target) or torch.equal(filled.flatten(), target)
    return torch.equal(cut.flatten(), target)


def _tensors(value, path=()):
    if isinstance(value, torch.Tensor):
        if value.dim() > 0:
            yield path, value
    elif isinstance(value, Mapping):
        for key in value:
            yield from _tensors(value[key], (*path, key))
    elif isinstance(value, (list, tuple)):
        for place, item in enumerate(value):
            yield from _tensors(item, (*path, place))


def _at(batch, path: tuple, shifted: bool) -> torch.Tensor:
    for key in path:
        batch = batch[key]
    return batch[..., 1:] if shifted else batch


def _name(path: tuple, shifted: bool) -> str:
    return "batch" + "".join(f"[{key!r}]" for key in path) + ("[..., 1:]" if shifted else "")
