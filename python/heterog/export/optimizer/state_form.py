"""What an optimizer keeps of one parameter from step to step, as the exporter found it out."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Kept:
    """An entry of an optimizer's state that is a tensor of the graph, one for each parameter."""

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    number: type | None  # int or float: Python's own, a tensor without dimensions in the graph
    start: float  # what it holds before the first step


@dataclass(frozen=True)
class Count:
    """An entry that counts the steps; in its place the graph takes the number of the step."""

    start: int  # before the first step
    form: object  # the dtype of a tensor without dimensions, or Python's int or float

    def after(self, steps: int):
        value = self.start + steps
        if isinstance(self.form, torch.dtype):
            return torch.tensor(value, dtype=self.form)
        return self.form(value)


@dataclass(frozen=True)
class StateForm:
    """All entries of one parameter's state."""

    kept: list[Kept]
    counts: dict[str, Count]
    constants: dict[str, object]  # neither tensor nor number, after the first step
    order: list[str]  # of all entries
    early: bool  # they are there before the first step
    group_counts: dict[str, Count]  # entries of param_groups that count


# ---- in files, as JSON has it ----

_PYTHON = {"int": int, "float": float}


def form_to_json(form: StateForm) -> dict:
    return {
        "kept": [
            [k.name, list(k.shape), list(k.strides), _name(k.dtype), k.number and _name(k.number),
             k.start]
            for k in form.kept
        ],
        "counts": _counts_to_json(form.counts),
        "constants": form.constants,
        "order": form.order,
        "early": form.early,
        "group_counts": _counts_to_json(form.group_counts),
    }  # fmt: skip


def form_from_json(found: dict) -> StateForm:
    kept = [
        Kept(name, tuple(shape), tuple(strides), _type(dtype), number and _type(number), start)
        for name, shape, strides, dtype, number, start in found["kept"]
    ]
    return StateForm(
        kept,
        _counts_from_json(found["counts"]),
        found["constants"],
        found["order"],
        found["early"],
        _counts_from_json(found["group_counts"]),
    )


def _counts_to_json(counts: dict[str, Count]) -> dict:
    return {name: [count.start, _name(count.form)] for name, count in counts.items()}


def _counts_from_json(found: dict) -> dict[str, Count]:
    return {name: Count(start, _type(form)) for name, (start, form) in found.items()}


def _name(kind) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind).removeprefix("torch.")


def _type(name: str):
    found = _PYTHON[name] if name in _PYTHON else getattr(torch, name)
    if not isinstance(found, (type, torch.dtype)):
        raise ValueError(f"{name} is no type of numbers")
    return found
