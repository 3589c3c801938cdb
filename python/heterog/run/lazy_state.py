"""The state of an optimizer whose newest values the workers of a runner hold."""

from collections import defaultdict
from collections.abc import Callable

import torch


class StateInWorkers(defaultdict):
    """Stands in `optimizer.state`. Whoever looks into it finds what a torch optimizer would hold
    after the same steps: `bring` is called before."""

    def __init__(self, entries: dict, bring: Callable[[], None]):
        super().__init__(dict)
        dict.update(self, entries)
        self._bring = bring

    def __reduce__(self):
        """A copy is of the values, and no runner's."""
        return defaultdict, (dict,), None, None, iter(list(self.items()))


def _looking(name: str):
    plain = getattr(defaultdict, name)

    def look(self, *args, **kwargs):
        self._bring()
        return plain(self, *args, **kwargs)

    look.__name__ = name
    return look


for _name in (
    "__getitem__", "__setitem__", "__delitem__", "__iter__", "__len__", "__contains__", "__eq__",
    "__ne__", "__repr__", "__or__", "__ror__", "__ior__", "__reversed__", "keys", "values",
    "items", "get", "pop", "popitem", "setdefault", "update", "clear", "copy",
):  # fmt: skip
    setattr(StateInWorkers, _name, _looking(_name))


def write_entry(entry: dict, values: dict) -> None:
    """The values into an entry of one parameter; its tensors stay the objects that they are."""
    for key, value in values.items():
        own = entry.get(key)
        kept = isinstance(own, torch.Tensor) and isinstance(value, torch.Tensor)
        if kept and own.shape == value.shape and own.dtype == value.dtype:
            with torch.no_grad():
                own.copy_(value)
        else:
            entry[key] = value


class OptimizerMirror:
    """As Mirror, of all that `optimizer.state` holds: tensors, numbers, and which there are."""

    def __init__(self, state, workers, steps: Callable[[], int], make_mirror):
        """`state`: an OptimizerState; `make_mirror(tensors, bring)`: the Mirror of its tensors."""
        self._state, self._workers, self._steps = state, workers, steps
        self._make_mirror = make_mirror
        self._entries = StateInWorkers({}, lambda: None)
        self._tensors = make_mirror({}, self.bring)
        self.away = False

    @property
    def may_differ(self) -> bool:
        replaced = self._state.optimizer.state is not self._entries
        return replaced or not self.away or self._tensors.may_differ

    @property
    def is_shared(self) -> bool:
        return self._tensors.is_shared

    def leave(self) -> None:
        """The workers have the newest values now."""
        optimizer = self._state.optimizer
        if self.away and optimizer.state is self._entries:
            return
        self._tensors.come_back()
        entries = dict(optimizer.state.items())
        tensors = {
            f"{number}/{key}": value
            for number, entry in enumerate(entries.values())
            for key, value in entry.items()
            if isinstance(value, torch.Tensor)
        }
        self._tensors = self._make_mirror(tensors, self.bring)
        self._entries = StateInWorkers(entries, self._tensors.look)
        optimizer.state = self._entries
        self._tensors.leave()
        self.away = True

    def after_step(self) -> None:
        if self.is_shared:
            self.bring()

    def bring(self) -> None:
        """`optimizer.state` holds what a torch optimizer would, from now on."""
        if not self.away:
            return
        self._tensors.check_reachable()
        names = self._workers.of_role("optimizer_state")
        found = self._state.entries(self._workers.fetch(names), self._steps())
        self._tensors.come_back()
        self.away = False
        known, now = self._state.with_state(), {id(parameter) for parameter, _ in found}
        for parameter in [p for p in self._entries if id(p) in known - now]:
            del self._entries[parameter]
        for parameter, values in found:
            write_entry(self._entries.setdefault(parameter, {}), values)

    def read(self) -> tuple[dict[str, torch.Tensor], int]:
        """What the program has left there: values by name, and steps done."""
        self.bring()
        self._tensors.come_back()
        self.away = False
        return self._state.initial()

    def lose(self, why: str) -> None:
        self._tensors.lose(why)
