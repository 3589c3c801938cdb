"""Tells frameworks after which batches a rank sums its gradients and updates: Accelerate's
accumulate(), and loops that count batches, as that of timm.

Accelerate knows the ends of the loaders that its prepare() made. One that stands in for such a loader
says itself where the accumulated batch ends; without that, the update of an epoch's last batches would
be lost, and ranks with different numbers of micro-batches would wait for each other for ever.
"""

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate
from contextlib import contextmanager


@contextmanager
def known_to_accelerate(loader) -> Iterator[Callable[[int], bool]]:
    """Inside, Accelerate reads `loader.end_of_dataloader`, if the script uses it. Gives a function that
    is called with how many micro-batches this rank accumulates in the step that begins, and says
    whether Accelerate, which divides losses by that, was told."""
    state = _state()
    if state is None:
        yield lambda _count: False
        return
    # As the script has it: a step of one micro-batch leaves a 1 there.
    steps = state.plugin_kwargs.get("num_steps", 1)

    def told(count: int) -> bool:
        if steps > 1:
            state.plugin_kwargs["num_steps"] = count
        return steps > 1

    state._add_dataloader(loader)
    try:
        yield told
    finally:
        state._remove_dataloader(loader)
        if steps > 1:
            state.plugin_kwargs["num_steps"] = steps


class OwnSteps(int):
    """The micro-batches of a rank of the even script, by which losses are divided, for a loop that
    counts batches: `batches % it` is 0 where one of this rank's steps begins or ends, and
    `batches // it` are the steps that have ended by then. All batches of an epoch, divided by it,
    are the epoch's steps, as `ceil(len(loader) / it)` asks."""

    def __new__(cls, sampler):
        steps = super().__new__(cls, sampler.parts)
        steps._sampler = sampler
        return steps

    def _bounds(self) -> list[int]:
        """Batches of this rank before each step of the epoch, and in all."""
        sampler = self._sampler
        sizes = (len(sampler.micro_sizes(number)) for number in range(sampler.global_batches))
        return list(accumulate(sizes, initial=0))

    def __rmod__(self, batches: int) -> int:
        return int(batches not in self._bounds())

    def __rfloordiv__(self, batches: int) -> int:
        return bisect_right(self._bounds(), batches) - 1

    def __rtruediv__(self, batches: int) -> float:
        # Not of 1, by which losses are scaled.
        bounds = self._bounds()
        return float(len(bounds) - 1) if batches == bounds[-1] > 1 else batches / int(self)


def counted_by_lightning(models, parts: int) -> bool:
    """Whether Lightning's Trainer accumulates the micro-batches. It sends a word between ranks in each
    batch, so that all need as many."""
    for model in models if parts > 1 else []:
        trainer = getattr(getattr(model, "module", None), "_trainer", None)
        if not hasattr(trainer, "accumulate_grad_batches"):
            continue
        if trainer.accumulate_grad_batches != parts:
            raise ValueError(
                f"accumulate: {parts}, but the Trainer accumulates {trainer.accumulate_grad_batches} "
                f"batches: give accumulate_grad_batches={parts}"
            )
        return True
    return False


def _state():
    accelerate = sys.modules.get("accelerate")
    if accelerate is None:
        return None
    state = accelerate.state.GradientState()
    return state if accelerate.state.PartialState._shared_state else None
