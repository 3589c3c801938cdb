"""The tensors that the workers of a runner keep between steps, by their names in the graph."""

import torch

from heterog.base.native import NativeRunner
from heterog.export.interpreter import dtype_of, shape_of, state_from_file
from heterog.export.state.registry import same_bits


class WorkerTensors:
    def __init__(self, native: NativeRunner, graph: dict):
        self._native = native
        self.entries = graph["tensors"]
        self.places = {
            entry["name"]: place
            for place, entry in enumerate(self.entries)
            if entry["role"] in ("parameter", "buffer", "optimizer_state") and native.keeps(place)
        }
        replaced = {entry["replaces"] for entry in self.entries if "replaces" in entry}
        # That a step writes.
        self.written = {name for name, place in self.places.items() if place in replaced}

    def __contains__(self, name: str) -> bool:
        return name in self.places

    def of_role(self, role: str) -> list[str]:
        return [name for name in self.places if self.role(name) == role]

    def role(self, name: str) -> str:
        return self.entry(name)["role"]

    def entry(self, name: str) -> dict:
        return self.entries[self.places[name]]

    def put(self, name: str, value: torch.Tensor) -> None:
        value = value.detach().to(dtype_of(self.entry(name)))
        self._native.set(self.places[name], value)

    def put_if_other(self, name: str, value: torch.Tensor) -> None:
        """Not a value that is theirs, rounded to another precision."""
        dtype = dtype_of(self.entry(name))
        if value.dtype != dtype and value.is_floating_point():
            own = self.fetch([name])[name]
            if own.shape == value.shape and same_bits(own.to(value.dtype), value.detach().cpu()):
                return
        self.put(name, value)

    def start_optimizer_state(self, values: dict[str, torch.Tensor]) -> None:
        """What is not given is as before the first step."""
        for name in self.of_role("optimizer_state"):
            self.put(name, values[name] if name in values else state_from_file(self.entry(name)))

    def put_optimizer_state(self, values: dict[str, torch.Tensor]) -> None:
        """As start_optimizer_state, of workers that have some."""
        for name in self.of_role("optimizer_state"):
            if name in values:
                self.put_if_other(name, values[name])
            else:
                self.put(name, state_from_file(self.entry(name)))

    def fetch(self, names: list[str]) -> dict[str, torch.Tensor]:
        found = {}
        for name in names:
            entry = self.entry(name)
            # No kept tensor depends on the number of samples.
            value = torch.empty(shape_of(entry, 1), dtype=dtype_of(entry))
            found[name] = self._native.get(self.places[name], value)
        return found
