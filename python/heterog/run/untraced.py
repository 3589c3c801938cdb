"""Batches at which a step was not traced: whether the model makes the same step of them."""

from collections.abc import Callable

import torch

from heterog.base.errors import ExportError, HeterogError
from heterog.base.progress import say_once
from heterog.export.graph.known_batches import holds_at, in_words, joined
from heterog.export.training_step import TrainingStep


class Untraced:
    """For which numbers of samples the graphs of a runner are known to hold.

    One that is not known is traced once, at the first batch of that size, and the graph that comes out
    is compared with the one that runs.
    """

    def __init__(
        self, steps: list[TrainingStep], again: Callable[[int, tuple[int, ...]], TrainingStep]
    ):
        """`again`: of a step's number and batch sizes, exports it at these."""
        self._steps = steps
        self._again = again
        self._known = [list(step.graph["holds"]) for step in steps]

    def check(self, graph: int, samples: int) -> None:
        """Refuses samples of which the model makes another step."""
        known = self._known[graph]
        traced = sorted(self._steps[graph].graph["traced_batches"])
        if samples < traced[0] or holds_at(known, samples):  # the workers refuse smaller ones
            return
        say_once(f"batches of {samples} samples: the step is traced at this size too, once")
        reason = "its graph at this size is another"
        try:
            made = self._again(graph, (*traced[:2], samples))
        except ExportError as error:
            reason = str(error)
        else:
            if _same(self._steps[graph], made):
                self._known[graph] = joined([*known, *made.graph["holds"]])
                return
        raise HeterogError(
            f"batch: {samples} samples: the model makes another step of them than of those for which "
            f"the runner's graph holds ({in_words(known)}): {reason}; leave such batches out "
            "(drop_last=True in the DataLoader), or let the model not decide by its batch"
        )


def _same(one: TrainingStep, other: TrainingStep) -> bool:
    if _form(one.graph) != _form(other.graph) or one.constants.keys() != other.constants.keys():
        return False
    return all(torch.equal(value, other.constants[name]) for name, value in one.constants.items())


def _form(graph: dict) -> dict:
    """Without what depends on which batches were traced, and on values that training changes."""
    plain = {key: value for key, value in graph.items() if key not in ("traced_batches", "holds")}
    plain["tensors"] = [
        {key: value for key, value in tensor.items() if key != "values"} for tensor in graph["tensors"]
    ]
    return plain
