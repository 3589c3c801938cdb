"""Steps of several lengths: which of the exported graphs a batch runs, and what it is given."""

from collections.abc import Callable

import torch

from heterog.base.errors import HeterogError
from heterog.export.interpreter import buffer_from_file, dtype_of
from heterog.export.training_step import TrainingStep
from heterog.run.batches import Inputs


def makers_of(make_inputs) -> list:
    """One function a length."""
    if not isinstance(make_inputs, (list, tuple)):
        return [make_inputs]
    if not make_inputs or not all(callable(maker) for maker in make_inputs):
        raise HeterogError(
            "make_inputs: a list of something else than functions given, or an empty one; it is a "
            "function, or a list of them, one for each length"
        )
    return list(make_inputs)


class Lengths:
    """The graphs of a runner, by the shapes of their inputs."""

    def __init__(
        self,
        steps: list[TrainingStep],
        names: list[str],
        batch: int,
        check: Callable[[int, int], None],
    ):
        """`check`: of a graph's number and a number of samples, refuses those at which the model may
        be another step."""
        self._steps = steps
        self._check = check
        self._inputs = [Inputs(step.graph, names, batch) for step in steps]
        self._tables: list[dict[int, torch.Tensor]] = [{} for _ in steps]

    def of(self, given) -> tuple[int, int, dict[int, torch.Tensor]]:
        """Graph, number of samples, and place in the graph → tensor."""
        graph = self._graph_of(given)
        samples, inputs = self._inputs[graph].of(given)
        self._check(graph, samples)
        return graph, samples, inputs | self._tables[graph]

    def of_rows(self, given, samples: int, rows_of) -> tuple[int, dict[int, torch.Tensor]]:
        """Graph, and place in the graph → tensor, of a batch of so many samples of which the given
        one holds the rows that rows_of(graph) names."""
        graph = self._graph_of(given)
        rows = rows_of(graph)
        self._check(graph, samples)
        inputs = self._inputs[graph].of_rows(given, samples, rows)
        return graph, inputs | self._tables[graph]

    def samples_of(self, given) -> int | None:
        return self._inputs[self._graph_of(given)].samples_of(given)

    def take_tables(self, buffers: dict[str, int]) -> list[str]:
        """Of buffers (name → place) that are not the model's own, those that a model makes of the
        length, whose values are not the same in all graphs: every step is given them from now on."""
        taken = []
        for name, place in buffers.items() if len(self._steps) > 1 else ():
            found = [_constant(step, name, place) for step in self._steps]
            values = [value for value in found if value is not None]
            if len(values) < len(found):
                continue
            if any(not torch.equal(value, values[0]) for value in values):
                taken.append(name)
                for table, value in zip(self._tables, values, strict=True):
                    table[place] = value.contiguous()
        return taken

    def constants(self) -> set[str]:
        """Names of what the model makes of numbers while it runs."""
        return {name for step in self._steps for name in step.constants}

    def _graph_of(self, given) -> int:
        for graph, inputs in enumerate(self._inputs):
            if len(self._inputs) == 1 or inputs.fit(given):
                return graph
        known = "; ".join(inputs.shapes() for inputs in self._inputs)
        raise HeterogError(
            f"batch: inputs of shapes that make_inputs does not make; it makes, with B samples: {known}"
        )


def _constant(step: TrainingStep, name: str, place: int) -> torch.Tensor | None:
    """The value of a buffer, as the graph has it; None: the step replaces it."""
    tensors = step.graph["tensors"]
    if any(tensor.get("replaces") == place for tensor in tensors):
        return None
    if name in step.constants:
        return step.constants[name].detach().to(dtype_of(tensors[place]))
    return buffer_from_file(tensors[place])
