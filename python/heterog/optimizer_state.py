"""The optimizer beside a runner: its groups must stay what was exported, its state is kept by the
workers and given back in torch.optim's own form."""

import math

import torch

from heterog.errors import HeterogError
from heterog.optimizers import IMPLEMENTATION_KEYS

_STATES = ("momentum_buffer", "exp_avg", "exp_avg_sq", "max_exp_avg_sq")
_RATE_TOLERANCE = 1e-9  # of the ratio of two groups' rates, which schedulers round apart


class OptimizerState:
    """Between a torch optimizer and tensors named `PARAMETER/STATE`."""

    def __init__(self, optimizer: torch.optim.Optimizer, model: torch.nn.Module, names: set[str]):
        known = {id(parameter): name for name, parameter in model.named_parameters()}
        self.optimizer = optimizer
        self._counts = not isinstance(optimizer, torch.optim.SGD)
        self._names = names  # of all optimizer state in the graph
        self._parameters = [  # in the order of torch.optim's numbers
            (known[id(parameter)], parameter)
            for group in optimizer.param_groups
            for parameter in group["params"]
        ]
        self._members = [[id(p) for p in group["params"]] for group in optimizer.param_groups]
        self._exported = [_options(group) for group in optimizer.param_groups]
        self._rates = [float(group["lr"]) for group in optimizer.param_groups]

    def rate(self) -> float:
        """The first group's learning rate now. The step has the others' as multiples of it and all
        other settings as constants: an error if they have changed."""
        groups = self._groups()
        for index, (group, exported) in enumerate(zip(groups, self._exported, strict=True)):
            now = _options(group)
            for key, value in exported.items():
                if now.get(key) != value:
                    raise HeterogError(
                        f"optimizer: param_groups[{index}]: {key} is {now.get(key)}, the runner was "
                        f"made with {value}; the learning rate alone may change, make another runner"
                    )
        rate = _rate_of(groups[0], 0)
        for index in range(1, len(groups)):
            expected = rate if self._rates[index] == self._rates[0] else self._ratio(index) * rate
            found = _rate_of(groups[index], index)
            if abs(found - expected) > _RATE_TOLERANCE * max(abs(found), abs(expected)):
                raise HeterogError(
                    f"optimizer: param_groups[{index}]: lr is {found}, and param_groups[0]'s "
                    f"{rate}; they were {self._rates[index]} and {self._rates[0]} when the runner "
                    "was made, and their ratio must stay"
                )
        return rate

    def _groups(self) -> list[dict]:
        """The optimizer's, which still hold the parameters that the runner was made with."""
        groups = self.optimizer.param_groups
        if len(groups) != len(self._members):
            raise HeterogError(
                f"optimizer: it has {len(groups)} param_groups, the runner was made with "
                f"{len(self._members)}; make another runner after add_param_group()"
            )
        for index, (group, members) in enumerate(zip(groups, self._members, strict=True)):
            if [id(parameter) for parameter in group["params"]] != members:
                raise HeterogError(
                    f"optimizer: param_groups[{index}] holds other parameters than the runner was "
                    "made with; make another runner"
                )
        return groups

    def _ratio(self, index: int) -> float:
        return self._rates[index] / self._rates[0]

    def initial(self) -> tuple[dict[str, torch.Tensor], int]:
        """What the torch optimizer holds, and how many steps it has done."""
        by_number = {
            number: self.optimizer.state[parameter]
            for number, (_, parameter) in enumerate(self._parameters)
            if parameter in self.optimizer.state
        }
        return self._read(by_number)

    def _read(self, by_number: dict) -> tuple[dict[str, torch.Tensor], int]:
        values, steps = {}, set()
        for number, (name, _) in enumerate(self._parameters):
            state = by_number.get(number, {})
            kept = [key for key in _STATES if f"{name}/{key}" in self._names]
            for key in kept:
                if isinstance(state.get(key), torch.Tensor):
                    values[f"{name}/{key}"] = state[key]
                elif state.get(key) is not None:
                    raise HeterogError(
                        f"optimizer state: {key} of {name} is a {type(state[key]).__name__}, no tensor"
                    )
            if kept and self._counts:
                steps.add(_steps_of(state, name))
        if len(steps) > 1:
            raise HeterogError(
                f"optimizer: its parameters have done {min(steps)} to {max(steps)} steps; a step of "
                "the runner updates all of them alike"
            )
        return values, steps.pop() if steps else 0

    def state_dict(self, values: dict[str, torch.Tensor], steps: int) -> dict:
        """In the form of torch.optim. `values`: by name."""
        groups, number = [], 0
        for group in self._groups():
            count = len(group["params"])
            packed = {key: value for key, value in group.items() if key != "params"}
            groups.append(packed | {"params": list(range(number, number + count))})
            number += count
        state = {}
        for number, (name, _) in enumerate(self._parameters):
            entry = {k: values[f"{name}/{k}"] for k in _STATES if f"{name}/{k}" in self._names}
            if entry and steps > 0:
                count = {"step": torch.tensor(float(steps))} if self._counts else {}
                state[number] = count | entry
        return {"state": state, "param_groups": groups}

    def load(self, state: dict) -> tuple[dict[str, torch.Tensor], int]:
        """Takes the groups' settings over; the state by name, and how many steps it has done."""
        groups = self._groups()
        _check_form(state)
        given = state["param_groups"]
        sizes = [len(group["params"]) for group in groups]
        if [len(group["params"]) for group in given] != sizes:
            raise HeterogError(
                f"optimizer state: groups of {[len(g['params']) for g in given]} parameters given; "
                f"the runner's optimizer has {sizes}"
            )
        numbers = [number for group in given for number in group["params"]]
        places = {number: place for place, number in enumerate(numbers)}
        for number in state["state"]:
            if number not in places:
                raise HeterogError(f"optimizer state: it has a parameter {number!r}, its groups have not")
        before = [dict(group) for group in groups]
        try:
            for own, other in zip(groups, given, strict=True):
                own.update({key: value for key, value in other.items() if key != "params"})
            self.rate()
            return self._read({places[number]: entry for number, entry in state["state"].items()})
        except HeterogError:
            for own, earlier in zip(groups, before, strict=True):
                own.clear()
                own.update(earlier)
            raise


def _check_form(state) -> None:
    """That it is what a torch optimizer's state_dict() gives."""
    groups = state.get("param_groups") if isinstance(state, dict) else None
    entries = state.get("state") if isinstance(state, dict) else None
    if (
        not isinstance(groups, list)
        or not all(isinstance(g, dict) and isinstance(g.get("params"), list) for g in groups)
        or not isinstance(entries, dict)
        or not all(isinstance(entry, dict) for entry in entries.values())
    ):
        raise HeterogError(
            "optimizer state: it is no dict of 'state' and 'param_groups' as the state_dict() of an "
            "optimizer"
        )


def _rate_of(group: dict, index: int) -> float:
    try:
        rate = float(group["lr"])
    except (KeyError, TypeError, ValueError, RuntimeError):
        rate = math.nan
    if not math.isfinite(rate):
        raise HeterogError(
            f"optimizer: param_groups[{index}]: lr is {group.get('lr')!r}; it is a number"
        )
    return rate


def _steps_of(state: dict, name: str) -> int:
    try:
        steps = int(state.get("step", 0))
    except (TypeError, ValueError, OverflowError, RuntimeError):
        steps = -1
    if steps < 0:
        raise HeterogError(f"optimizer state: step of {name} is {state['step']!r}; it is a number")
    return steps


def _options(group: dict) -> dict:
    return {k: v for k, v in group.items() if k not in IMPLEMENTATION_KEYS | {"params", "lr"}}
