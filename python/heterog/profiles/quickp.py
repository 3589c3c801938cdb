"""Graphs that a profiler of TensorFlow wrote for QuickP: operators of a training step as node-link JSON."""

from heterog.base.errors import HeterogError
from heterog.base.reading import read_json
from heterog.base.values import as_int, as_list, as_number, as_object, as_string, required, shown
from heterog.profiles.layer_graph import MOST_BYTES, Layer, in_order

_MOST_MICROSECONDS = 1e15  # 30 years
_BACKWARD, _UPDATE = "gradient_tape/", "adam/"
_GIVEN = {"Const", "Placeholder", "ReadVariableOp", "NoOp"}  # constants, inputs and variables


def read_quickp(path) -> list[Layer]:
    """Forward operators that the gradients need are layers; times are in microseconds, of the slowest device.

    Operators under gradient_tape/ count for the layers of the longest scope that theirs begins with, in
    proportion to forward times, or for all layers where there is none. A layer's parameters are the
    variables that it reads. Times of the optimizer are left out: updates are planned by parameters."""
    file = as_object(read_json(path), str(path))
    seconds, kinds = _nodes(path, file)
    edges = _edges(path, file, kinds)
    needed = _needed(edges, kinds)
    layers: dict[str, Layer] = {
        name: Layer(name, seconds[name], 0.0, 0.0, 0.0) for name in kinds if name in needed and _is_layer(name, kinds)
    }
    if not layers:
        raise HeterogError(f"{path}: no node under {_BACKWARD} reads a forward operator; expected a training graph")
    for source, target, size in edges:
        layer = layers.get(target)
        if source in layers:
            layers[source].output_bytes = max(layers[source].output_bytes, size)
            if layer is not None:
                layer.inputs.append(source)
        elif layer is not None and kinds[source] == "ReadVariableOp":
            layer.parameter_bytes += size
    _add_backward(layers, {name: time for name, time in seconds.items() if name.startswith(_BACKWARD)})
    return in_order(path, layers)


def _nodes(path, file: dict) -> tuple[dict[str, float], dict[str, str]]:
    seconds: dict[str, float] = {}
    kinds: dict[str, str] = {}
    for i, value in enumerate(as_list(required(file, "nodes", str(path)), f"{path}: nodes")):
        where = f"{path}: nodes[{i}]"
        node = as_object(value, where)
        name = as_string(required(node, "id", where), f"{where}.id")[:200]
        if name in kinds:
            raise HeterogError(f"{where}.id: {shown(name)} stands twice")
        kinds[name] = as_string(required(node, "op_type", where), f"{where}.op_type")
        costs = as_object(required(node, "comp_cost", where), f"{where}.comp_cost")
        times = [as_number(cost, f"{where}.comp_cost", 0, _MOST_MICROSECONDS) for cost in costs.values()]
        if not times:
            raise HeterogError(f"{where}.comp_cost: no device")
        seconds[name] = 1e-6 * max(times)
    return seconds, kinds


def _edges(path, file: dict, kinds: dict[str, str]) -> list[tuple[str, str, float]]:
    edges = []
    for i, value in enumerate(as_list(required(file, "links", str(path)), f"{path}: links")):
        where = f"{path}: links[{i}]"
        edge = as_object(value, where)
        ends = [as_string(required(edge, key, where), f"{where}.{key}")[:200] for key in ("source", "target")]
        for name in ends:
            if name not in kinds:
                raise HeterogError(f"{where}: no node {shown(name)}")
        bits = as_int(required(edge, "tensor_size_in_bit", where), f"{where}.tensor_size_in_bit", 0,
                      int(8 * MOST_BYTES))  # fmt: skip
        edges.append((ends[0], ends[1], bits / 8))
    return edges


def _is_layer(name: str, kinds: dict[str, str]) -> bool:
    return not name.startswith((_BACKWARD, _UPDATE)) and kinds[name] not in _GIVEN


def _needed(edges: list[tuple[str, str, float]], kinds: dict[str, str]) -> set[str]:
    """What some gradient is computed from: neither metrics nor counters of steps."""
    sources: dict[str, list[str]] = {}
    for source, target, _ in edges:
        sources.setdefault(target, []).append(source)
    found: set[str] = set()
    waiting = [name for name in kinds if name.startswith(_BACKWARD)]
    while waiting:
        for source in sources.get(waiting.pop(), []):
            if source not in found:
                found.add(source)
                waiting.append(source)
    return found


def _add_backward(layers: dict[str, Layer], backward: dict[str, float]) -> None:
    of_scope: dict[str, list[Layer]] = {"": list(layers.values())}
    for name, layer in layers.items():
        parts = name.split("/")
        for end in range(1, len(parts) + 1):
            of_scope.setdefault("/".join(parts[:end]), []).append(layer)
    for name, seconds in backward.items():
        parts = name.removeprefix(_BACKWARD).split("/")
        scope = next(scope for end in range(len(parts), -1, -1)
                     if (scope := "/".join(parts[:end])) in of_scope)  # fmt: skip
        members = of_scope[scope]
        forward = sum(layer.forward_seconds for layer in members)
        for layer in members:
            part = layer.forward_seconds / forward if forward > 0 else 1 / len(members)
            layer.backward_seconds += seconds * part
