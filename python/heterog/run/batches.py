"""From what a data loader yields to the inputs of a step."""

import torch

from heterog.base.errors import HeterogError
from heterog.export.interpreter import data_inputs, dimension
from heterog.run.own_samples import spread


class Inputs:
    """The inputs of a graph that come from data, in the order of make_inputs' tuple."""

    def __init__(self, graph: dict, names: list[str], batch: int):
        self._names = names  # all that make_inputs gives; the step may read fewer
        self._tensors = graph["tensors"]
        self._places = data_inputs(graph)
        self._batch = batch

    def of(self, given) -> tuple[int, dict[int, torch.Tensor]]:
        """For a tensor, tuple, list or dict: the number of its samples, and place in the graph →
        tensor, contiguous, on the CPU or the GPU on which it was given."""
        values = self._in_order(given)
        batch = self._batch_of(values)
        inputs = {}
        for name, value in zip(self._names, values, strict=True):
            if name not in self._places:
                continue
            place = self._places[name]
            entry = self._tensors[place]
            inputs[place] = self._fitting(entry, _tensor(entry, value), batch)
        return batch, inputs

    def of_rows(
        self, given, samples: int, rows: list[tuple[int, int]]
    ) -> dict[int, torch.Tensor]:
        """The same of a batch of so many samples, of which the given one holds these rows alone."""
        inputs = {}
        count = sum(end - begin for begin, end in rows)
        for name, value in zip(self._names, self._in_order(given), strict=True):
            if name not in self._places:
                continue
            place = self._places[name]
            entry = self._tensors[place]
            axis = _axis_of_samples(entry)
            if axis is None:
                inputs[place] = self._fitting(entry, _tensor(entry, value), samples)
                continue
            shape = [dimension(dim, samples) for dim in entry["shape"]]
            if count == 0:  # whatever was given: no rank here reads any
                inputs[place] = torch.zeros(shape, dtype=getattr(torch, entry["dtype"]))
                continue
            own = self._fitting(entry, _tensor(entry, value), count, "of this process's samples")
            inputs[place] = spread(own, rows, axis, shape)
        return inputs

    def _batch_of(self, values: list) -> int:
        """The number of samples of the first input that has some; the plan's, if none fits any."""
        for name, value in zip(self._names, values, strict=True):
            if name not in self._places or not isinstance(value, torch.Tensor):
                continue
            shape = self._tensors[self._places[name]]["shape"]
            for dim, size in zip(shape, value.shape, strict=False):
                samples = _samples(dim, size)
                if samples is not None and samples > 0:
                    return samples
        return self._batch

    def fit(self, given) -> bool:
        """Whether every input has the shape that it has in the graph, at any number of samples."""
        for name, value in zip(self._names, self._in_order(given), strict=True):
            if name not in self._places or not isinstance(value, torch.Tensor):
                continue
            shape = self._tensors[self._places[name]]["shape"]
            if len(shape) != value.dim():
                return False
            if any(_samples(dim, n) is None for dim, n in zip(shape, value.shape, strict=True)):
                return False
        return True

    def shapes(self) -> str:
        entries = [self._tensors[place] for place in self._places.values()]
        return ", ".join(f"{_shown(entry)} {_sizes(entry['shape'])}" for entry in entries)

    def samples_of(self, given) -> int | None:
        """How many samples a batch has, as far as its shapes tell; None if they fit none."""
        found = None
        for name, value in zip(self._names, self._in_order(given), strict=True):
            if name not in self._places or not isinstance(value, torch.Tensor):
                continue
            entry = self._tensors[self._places[name]]
            if len(entry["shape"]) != value.dim():
                return None
            for dim, size in zip(entry["shape"], value.shape, strict=True):
                samples = _samples(dim, size)
                if samples is None or (found not in (None, samples) and samples >= 0):
                    return None
                if samples >= 0:
                    found = samples
        return found

    def _in_order(self, given) -> list:
        if isinstance(given, torch.Tensor):
            given = [given]
        if isinstance(given, dict) or hasattr(given, "keys"):
            missing = [name for name in self._names if name not in given]
            if missing:
                raise HeterogError(
                    f"batch: the dict has no {missing[0]!r}; loss_fn asks for "
                    f"{', '.join(self._names)}, and the dict has {', '.join(map(str, given.keys()))}"
                )
            return [given[name] for name in self._names]
        if not isinstance(given, (tuple, list)):
            raise HeterogError(
                f"batch: {type(given).__name__} given; a step takes a tensor, a tuple, a list or a "
                "dict of tensors"
            )
        if len(given) != len(self._names):
            raise HeterogError(
                f"batch: {len(given)} values given; make_inputs makes {len(self._names)} "
                f"({', '.join(self._names)})"
            )
        return list(given)

    def _fitting(
        self, entry: dict, value: torch.Tensor, batch: int, what: str = "samples"
    ) -> torch.Tensor:
        wanted = getattr(torch, entry["dtype"])
        if value.dtype != wanted:
            # As on export: everything floating is float64 with `double`.
            if not (value.is_floating_point() and wanted == torch.float64):
                raise HeterogError(
                    f"batch: '{_shown(entry)}' is {value.dtype}; make_inputs makes {wanted}"
                )
            value = value.to(wanted)
        shape = [dimension(dim, batch) for dim in entry["shape"]]
        if list(value.shape) != shape:
            raise HeterogError(
                f"batch: '{_shown(entry)}' has shape {list(value.shape)}; in a batch of {batch} "
                f"{what} it has {shape}"
            )
        value = value.detach()
        # Of a GPU, ranks take it from there.
        return (value if value.device.type == "cuda" else value.cpu()).contiguous()


def _tensor(entry: dict, value) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise HeterogError(
            f"batch: {type(value).__name__} given for '{_shown(entry)}'; the loader's collate_fn "
            "makes tensors"
        )
    if value.layout != torch.strided or value.device.type == "meta":
        raise HeterogError(
            f"batch: '{_shown(entry)}' is a {value.layout} tensor on {value.device.type}; a step "
            "takes dense ones that hold values"
        )
    return value


def _axis_of_samples(entry: dict) -> int | None:
    """None: every rank reads all of it."""
    axes = [axis for axis, dim in enumerate(entry["shape"]) if isinstance(dim, str)]
    if not axes:
        return None
    if len(axes) > 1 or entry["shape"][axes[0]] != "B":
        raise HeterogError(
            f"batch: '{_shown(entry)}' has shape {_sizes(entry['shape'])}, in which a sample is no "
            "row; give whole batches, to step()"
        )
    return axes[0]


def _shown(entry: dict) -> str:
    return entry.get("argument", entry["name"])


def _sizes(shape: list) -> str:
    return f"[{', '.join(str(dim) for dim in shape)}]"


def _samples(dim, size: int) -> int | None:
    """The batch at which a dimension has this size: −1 for any, None for no batch."""
    if not isinstance(dim, str):
        return -1 if dim == size else None
    at_zero = dimension(dim, 0)
    per_sample = dimension(dim, 1) - at_zero
    samples, rest = divmod(size - at_zero, per_sample)
    return samples if rest == 0 else None
