"""Tells Accelerate's accumulate() after which batches a rank sums its gradients and updates.

Accelerate knows the ends of the loaders that its prepare() made. One that stands in for such a loader
says itself where the accumulated batch ends; without that, the update of an epoch's last batches would
be lost, and ranks with different numbers of micro-batches would wait for each other for ever.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def known_to_accelerate(loader) -> Iterator[None]:
    """Inside, Accelerate reads `loader.end_of_dataloader`, if the script uses it."""
    state = _state()
    if state is None:
        yield
        return
    steps = state.plugin_kwargs.get("num_steps")
    state._add_dataloader(loader)
    try:
        yield
    finally:
        state._remove_dataloader(loader)
        if steps is not None:
            state.plugin_kwargs["num_steps"] = steps


def micro_batches_told(count: int) -> bool:
    """This rank accumulates so many in the step that begins; whether Accelerate, which divides losses
    by that, was told."""
    state = _state()
    if state is None or state.plugin_kwargs.get("num_steps", 1) == 1:
        return False
    state.plugin_kwargs["num_steps"] = count
    return True


def _state():
    accelerate = sys.modules.get("accelerate")
    if accelerate is None:
        return None
    state = accelerate.state.GradientState()
    return state if accelerate.state.PartialState._shared_state else None
