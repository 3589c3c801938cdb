"""Gives every tensor and operator of a step a name of its own, whatever a model calls its own."""

from heterog.export.graph.ir import Step

_KEPT = ("parameter", "buffer", "optimizer_state")


def give_names(step: Step) -> None:
    """Parameters, buffers, optimizer state and settings keep their names, then inputs, then all
    else; whoever comes later to a name that is taken gets a number."""
    kept = [t for t in step.inputs if t.role in _KEPT or t.setting is not None]
    given = [t for t in step.inputs if t.role not in _KEPT and t.setting is None]
    made = [t for op in step.ops for t in op.outputs if t is not None]
    before = {tensor: tensor.name for tensor in given}
    _distinguish([*kept, *given, *made])
    for tensor, name in before.items():
        if tensor.name != name:
            tensor.argument = name
    _distinguish(step.ops)


def _distinguish(named: list) -> None:
    wanted = {item.name for item in named}
    taken: set[str] = set()
    for item in named:
        name, number = item.name, 0
        while name in taken or (number and name in wanted):
            number += 1
            name = f"{item.name}_{number}"
        item.name = name
        taken.add(name)
