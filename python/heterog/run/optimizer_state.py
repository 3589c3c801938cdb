"""The optimizer beside a runner: its groups must stay what was exported, its state is kept by the
workers and given back in torch.optim's own form."""

import math

import torch

from heterog.base.errors import HeterogError
from heterog.export.optimizer.settings import IMPLEMENTATION_KEYS, Update, momentum_of
from heterog.export.optimizer.state_form import StateForm

_RATE_TOLERANCE = 1e-9  # of the ratio of two groups' rates, which schedulers round apart


class OptimizerState:
    """Between a torch optimizer and tensors named `PARAMETER/STATE`."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        model: torch.nn.Module,
        update: Update,
        reads_step: bool,
    ):
        known = {id(parameter): name for name, parameter in model.named_parameters()}
        self.optimizer = optimizer
        self._forms = update.forms  # by parameter
        self._momentum = update.momentum
        self._reads_step = reads_step
        # Settings of the groups that count the steps.
        self._group_counts = {
            key: count for form in update.forms.values() for key, count in form.group_counts.items()
        }
        self._parameters = [  # in the order of torch.optim's numbers
            (known[id(parameter)], parameter)
            for group in optimizer.param_groups
            for parameter in group["params"]
        ]
        self._members = [[id(p) for p in group["params"]] for group in optimizer.param_groups]
        self._exported = [self._constants(group) for group in optimizer.param_groups]
        self._rates = [float(group["lr"]) for group in optimizer.param_groups]

    def settings(self) -> dict[str, float]:
        """What a step is given, by the names of its inputs."""
        given = {"lr": self.rate()}
        if self._momentum is not None:
            given["momentum"] = self._momentum_now()
        return given

    def _momentum_now(self) -> float:
        found = [momentum_of(group) for group in self.optimizer.param_groups]
        for index, value in enumerate(found):
            plain = isinstance(value, (int, float)) and math.isfinite(value)
            if not plain or value != found[0]:
                raise HeterogError(
                    f"optimizer: param_groups[{index}]: the momentum is {value!r}, and "
                    f"param_groups[0]'s {found[0]!r}; it is a number, the same in all"
                )
        if not self._momentum.holds(found[0]):
            raise HeterogError(
                f"optimizer: the momentum is {found[0]}; the step was exported at "
                f"{self._momentum.value} and would be another one (a momentum of 0 is left out); make "
                "another runner"
            )
        return float(found[0])

    def _constants(self, group: dict) -> dict:
        """The settings of a group that the step has as constants."""
        found = {
            key: value
            for key, value in group.items()
            if key not in IMPLEMENTATION_KEYS | {"params", "lr"} | self._group_counts.keys()
        }
        if self._momentum is not None:
            if "betas" in found:
                found["betas"] = tuple(found["betas"][1:])
            else:
                found.pop("momentum", None)
        return found

    def rate(self) -> float:
        """The first group's learning rate now. The step has the others' as multiples of it and all
        other settings as constants: an error if they have changed."""
        groups = self._groups()
        for index, (group, exported) in enumerate(zip(groups, self._exported, strict=True)):
            now = self._constants(group)
            for key, value in exported.items():
                if now.get(key) != value:
                    raise HeterogError(
                        f"optimizer: param_groups[{index}]: {key} is {now.get(key)}, the runner was "
                        f"made with {value}; the learning rate alone may change (with momentum_input "
                        "the momentum too), make another runner"
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

    def differences(self) -> list[str]:
        """What the step has as a constant and is another now; empty in most cases."""
        try:
            self.settings()
        except HeterogError as error:
            return [str(error)]
        return []

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
        values, steps, begun, bare = {}, set(), "", ""
        for number, (name, _) in enumerate(self._parameters):
            form = self._forms.get(name)
            if form is None:
                continue
            state = by_number.get(number, {})
            if form.kept and not any(kept.name in state for kept in form.kept):
                bare = name
            for kept in form.kept:
                value = state.get(kept.name)
                if form.early and value is None:
                    kind = type(self.optimizer).__name__
                    raise HeterogError(
                        f"optimizer state: {kept.name} of {name} is gone; {kind} makes it once, when it "
                        "is made itself, and its next step would stop"
                    )
                if kept.number is not None and isinstance(value, (int, float)):
                    value = torch.tensor(float(value), dtype=kept.dtype)
                if isinstance(value, torch.Tensor):
                    values[f"{name}/{kept.name}"] = value
                    begun = name
                elif value is not None:
                    raise HeterogError(
                        f"optimizer state: {kept.name} of {name} is a {type(value).__name__}, no "
                        + ("tensor" if kept.number is None else "number")
                    )
            for key, count in form.counts.items():
                steps.add(_steps_of(state, key, name, count.start))
        for key, count in self._group_counts.items():
            for group in self.optimizer.param_groups:
                steps.add(_steps_of(group, key, "param_groups", count.start))
        if len(steps) > 1:
            raise HeterogError(
                f"optimizer: its parameters have done {min(steps)} to {max(steps)} steps; a step of "
                "the runner updates all of them alike"
            )
        # Where nothing counts, state says that there was a first step.
        tells = self._reads_step and not any(f.early for f in self._forms.values())
        if tells and begun and bare and not steps:
            raise HeterogError(
                f"optimizer: {bare} has no state, and {begun} has; the first step of a parameter is "
                "another than those after it, and a step of the runner updates all of them alike"
            )
        return values, steps.pop() if steps else int(bool(begun) and tells)

    def steps_after_reading(self, found: int, steps: int) -> int:
        """How many steps are done, if the optimizer's own state says `found`, and there were `steps`."""
        if self._group_counts or any(form.counts for form in self._forms.values()):
            return found
        if self._reads_step and any(form.kept for form in self._forms.values()):
            return max(steps, 1) if found else 0
        return steps

    def state_dict(self, values: dict[str, torch.Tensor], steps: int) -> dict:
        """In the form of torch.optim. `values`: by name."""
        groups, number = [], 0
        for group in self._groups():
            count = len(group["params"])
            packed = {key: value for key, value in group.items() if key != "params"}
            if steps > 0:
                packed |= {key: count.after(steps) for key, count in self._group_counts.items()}
            groups.append(packed | {"params": list(range(number, number + count))})
            number += count
        places = {id(p): number for number, (_, p) in enumerate(self._parameters)}
        entries = self.entries(values, steps)
        state = {places[id(p)]: entry for p, entry in entries}
        return {"state": state, "param_groups": groups}

    def with_state(self) -> set[int]:
        """Ids of the parameters of which a step keeps something."""
        forms = self._forms
        return {id(p) for name, p in self._parameters if name in forms and forms[name].order}

    def entries(self, values: dict[str, torch.Tensor], steps: int) -> list[tuple]:
        """Parameters, and what `optimizer.state` holds of each."""
        found = []
        for name, parameter in self._parameters:
            form = self._forms.get(name)
            if form is not None and form.order and (steps > 0 or form.early):
                found.append((parameter, _entry(form, name, values, steps)))
        return found

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


def _entry(form: StateForm, name: str, values: dict[str, torch.Tensor], steps: int) -> dict:
    """What torch.optim holds of one parameter."""
    kept = {kept.name: kept for kept in form.kept}
    entry: dict = {}
    for key in form.order:
        if key in form.counts:
            entry[key] = form.counts[key].after(steps)
        elif key in form.constants:
            entry[key] = form.constants[key]
        else:
            # What no step reads or changes, no worker keeps.
            start = torch.full(kept[key].shape, kept[key].start, dtype=kept[key].dtype)
            value = values.get(f"{name}/{key}", start)
            entry[key] = value if kept[key].number is None else kept[key].number(value.item())
    return entry


def _steps_of(state: dict, key: str, name: str, start: int) -> int:
    try:
        steps = int(state.get(key, start)) - start
    except (TypeError, ValueError, OverflowError, RuntimeError):
        steps = -1
    if steps < 0:
        raise HeterogError(f"optimizer state: {key} of {name} is {state[key]!r}; it is a number")
    return steps
