"""Numbers from [0, 1) that a model draws from Python's or numpy's generator, while a step is traced.

They are for branches on a rate, as those of torch.rand are (data_dependent.py): a rate of 0 or 1 decides,
and another is refused. Whatever else is drawn is noticed by the generator's state (python_state.py).
"""

import contextlib
import random
import sys
import threading
from collections.abc import Iterator

from heterog.export.tracing.data_dependent import Decisions, DrawnNumber


@contextlib.contextmanager
def python_draws(decisions: Decisions) -> Iterator[None]:
    replaced = [(random, name) for name in ("random", "uniform")]
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        replaced += [(numpy.random, name) for name in ("rand", "random", "random_sample", "uniform")]
    before = [getattr(module, name) for module, name in replaced]
    for (module, name), own in zip(replaced, before, strict=True):
        setattr(module, name, _drawing(own, decisions))
    try:
        yield
    finally:
        for (module, name), own in zip(replaced, before, strict=True):
            setattr(module, name, own)


def _drawing(own, decisions: Decisions):
    here = threading.get_ident()

    def draw(*args, **kwargs):
        if kwargs or args not in ((), (0, 1)) or threading.get_ident() != here:
            return own(*args, **kwargs)
        return DrawnNumber(decisions)

    return draw
