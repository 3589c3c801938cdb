"""Models as profiles of other planners describe them: layers with times and sizes, and what feeds what."""

import re
from dataclasses import dataclass, field

from heterog.base.errors import HeterogError
from heterog.base.reading import read_json, read_text
from heterog.base.values import as_int, as_list, as_number, as_object, number_in, required, shown

_LONGEST_LINE = 1 << 16
MOST_BYTES = 2.0**50
_MOST_MILLISECONDS = 1e12  # 30 years


@dataclass
class Layer:
    name: str
    forward_seconds: float
    backward_seconds: float
    output_bytes: float  # of the whole batch
    parameter_bytes: float
    inputs: list[str] = field(default_factory=list)  # names of layers


_NODE = re.compile(
    r"(?P<name>\S+) -- (?P<what>.*) -- forward_compute_time=(?P<forward>[0-9.eE+-]+), "
    r"backward_compute_time=(?P<backward>[0-9.eE+-]+), activation_size=(?P<output>[^=]*), "
    r"parameter_size=(?P<parameters>[0-9.eE+-]+)\s*$"
)
_EDGE = re.compile(r"\t(\S+) -- (\S+)\s*$")


def read_pipedream(path) -> list[Layer]:
    """PipeDream's graph.txt: a line a node, then a line, with a tab, an edge; times in milliseconds."""
    layers: dict[str, Layer] = {}
    for number, line in enumerate(read_text(path).splitlines(), 1):
        where = f"{path}:{number}"
        if len(line) > _LONGEST_LINE:
            raise HeterogError(f"{where}: more than {_LONGEST_LINE} characters in a line")
        if edge := _EDGE.match(line):
            before, after = edge.groups()
            for name in (before, after):
                if name not in layers:
                    raise HeterogError(f"{where}: no node {shown(name)} before its edge")
            layers[after].inputs.append(before)
            continue
        node = _NODE.match(line)
        if node is None:
            raise HeterogError(f"{where}: {shown(line, 60)}, expected 'NAME -- WHAT -- forward_compute_time=…'")
        name = node["name"]
        if name in layers:
            raise HeterogError(f"{where}: node {shown(name)} stands twice, expected one line")
        # Of several outputs ("[0.0; 4.0]") all are sent.
        sizes = [_figure(size.strip(), where, name) for size in node["output"].strip("[]").split(";")]
        forward, backward = (1e-3 * _figure(node[key], where, name) for key in ("forward", "backward"))
        layers[name] = Layer(name, forward, backward, sum(sizes), _figure(node["parameters"], where, name))
    return in_order(path, layers)


@dataclass
class _Node:
    """Of a JSON graph of dnn-partitioning."""

    name: str
    milliseconds: float
    size: float
    is_backward: bool
    colour: int | str | None  # of what is one layer


def read_partitioning(path) -> list[Layer]:
    """Training graphs of "Efficient Algorithms for Device Placement of DNN Graph Operators":
    forward and backward nodes, which a colour class joins; times in milliseconds. Backward nodes of
    no forward node's class count for all layers, in proportion to their forward times."""
    file = as_object(read_json(path), str(path))
    nodes: dict[int | str, _Node] = {}
    for i, value in enumerate(as_list(required(file, "nodes", str(path)), f"{path}: nodes")):
        number, node = _node(value, f"{path}: nodes[{i}]")
        if number in nodes:
            raise HeterogError(f"{path}: nodes[{i}].id: {shown(number)} stands twice")
        nodes[number] = node
    outputs: dict[int | str, float] = {}  # of each node, its largest
    inputs: dict[int | str, list[int | str]] = {}
    for i, value in enumerate(as_list(required(file, "edges", str(path)), f"{path}: edges")):
        where = f"{path}: edges[{i}]"
        edge = as_object(value, where)
        source, target = (_key(required(edge, key, where), f"{where}.{key}") for key in ("sourceId", "destId"))
        size = as_number(required(edge, "size", where), f"{where}.size", 0, MOST_BYTES)
        outputs[source] = max(outputs.get(source, 0.0), size)
        inputs.setdefault(target, []).append(source)
    return in_order(path, _layers(path, nodes, outputs, inputs))


def _node(value, where: str) -> tuple[int | str, _Node]:
    node = as_object(value, where)
    milliseconds = as_number(required(node, "fpgaLatency", where), f"{where}.fpgaLatency", 0, _MOST_MILLISECONDS)
    colour = node.get("colorClass")
    return _key(required(node, "id", where), f"{where}.id"), _Node(
        str(_key(node.get("name", "node"), f"{where}.name")),
        milliseconds,
        as_number(required(node, "size", where), f"{where}.size", 0, MOST_BYTES),
        bool(required(node, "isBackwardNode", where)),
        None if colour is None else _key(colour, f"{where}.colorClass"),
    )


def _layers(path, nodes: dict, outputs: dict, inputs: dict) -> dict[str, Layer]:
    forward = {i: node for i, node in nodes.items() if not node.is_backward}
    if len(forward) == len(nodes):
        raise HeterogError(f"{path}: no backward nodes; expected a training graph, not one of inference")
    members: dict[int | str, int] = {}
    for node in forward.values():
        if node.colour is not None:
            members[node.colour] = members.get(node.colour, 0) + 1
    seconds_of_class = dict.fromkeys(members, 0.0)
    others = 0.0
    for node in nodes.values():
        if not node.is_backward:
            continue
        if node.colour in members:
            seconds_of_class[node.colour] += 1e-3 * node.milliseconds
        else:
            others += 1e-3 * node.milliseconds
    all_forward = 1e-3 * sum(node.milliseconds for node in forward.values())
    layers = {}
    for i, node in forward.items():
        output, seconds = outputs.get(i, 0.0), 1e-3 * node.milliseconds
        backward = others * seconds / all_forward if all_forward > 0 else 0.0
        if node.colour in members:
            backward += seconds_of_class[node.colour] / members[node.colour]
        layers[str(i)] = Layer(
            f"{node.name}_{i}", seconds, backward, output, max(0.0, node.size - output),
            [str(source) for source in inputs.get(i, []) if source in forward],
        )  # fmt: skip
    return layers


def _key(value, where: str) -> int | str:
    """What names a node or a class: a whole number or a text."""
    return value[:200] if isinstance(value, str) else as_int(value, where, -(2**53), 2**53)


def _figure(text: str, where: str, name: str) -> float:
    number = number_in(text)
    if number is None or not 0 <= number <= MOST_BYTES:
        raise HeterogError(f"{where}: node {shown(name)}: {shown(text)}, expected a number from 0 to {MOST_BYTES:g}")
    return number


def in_order(path, layers: dict[str, Layer]) -> list[Layer]:
    """What a layer reads comes before it; its inputs by the names of layers, each once."""
    if not layers:
        raise HeterogError(f"{path}: no nodes")
    if len({layer.name for layer in layers.values()}) < len(layers):
        raise HeterogError(f"{path}: two nodes have one name and number, expected different ones")
    place = {key: i for i, key in enumerate(layers)}
    readers: dict[str, list[str]] = {}
    missing: dict[str, int] = {}
    for key, layer in layers.items():
        layer.inputs = list(dict.fromkeys(layer.inputs))
        missing[key] = len(layer.inputs)
        for one in layer.inputs:
            readers.setdefault(one, []).append(key)
    order: list[Layer] = []
    ready = [key for key, count in missing.items() if count == 0]
    while ready:
        order += [layers[key] for key in ready]
        next_ready = []
        for key in ready:
            for reader in readers.get(key, []):
                missing[reader] -= 1
                if missing[reader] == 0:
                    next_ready.append(reader)
        ready = sorted(next_ready, key=place.__getitem__)
    if len(order) < len(layers):
        stuck = next(key for key, count in missing.items() if count > 0)
        raise HeterogError(f"{path}: node {shown(stuck)} waits for itself; expected no circles")
    for layer in order:
        layer.inputs = [layers[key].name for key in layer.inputs]
    return order
