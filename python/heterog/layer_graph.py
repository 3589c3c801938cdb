"""Models as profiles of other planners describe them: layers with times and sizes, and what feeds what."""

import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path

from heterog.errors import HeterogError


@dataclass
class Layer:
    name: str
    forward_seconds: float
    backward_seconds: float
    output_bytes: float  # of the whole batch
    parameter_bytes: float
    inputs: list[str] = field(default_factory=list)  # names of layers


_NODE = re.compile(
    r"(?P<name>\S+) -- (?P<what>.*) -- forward_compute_time=(?P<forward>[\d.eE+-]+), "
    r"backward_compute_time=(?P<backward>[\d.eE+-]+), activation_size=(?P<output>[^=]*), "
    r"parameter_size=(?P<parameters>[\d.eE+-]+)\s*$"
)
_EDGE = re.compile(r"\t(\S+) -- (\S+)\s*$")


def read_pipedream(path) -> list[Layer]:
    """PipeDream's graph.txt: a line a node, then a line, with a tab, an edge; times in milliseconds."""
    layers: dict[str, Layer] = {}
    for number, line in enumerate(_text(path).splitlines(), 1):
        if edge := _EDGE.match(line):
            before, after = edge.groups()
            for name in (before, after):
                if name not in layers:
                    raise HeterogError(f"{path}:{number}: no node '{name}' before its edge")
            layers[after].inputs.append(before)
            continue
        node = _NODE.match(line)
        if node is None:
            raise HeterogError(f"{path}:{number}: {line[:60]!r}, expected 'NAME -- WHAT -- forward_compute_time=…'")
        name = node["name"]
        if name in layers:
            raise HeterogError(f"{path}:{number}: node '{name}' stands twice, expected one line")
        try:
            # Of several outputs ("[0.0; 4.0]") all are sent.
            output = sum(_number(size) for size in node["output"].strip("[]").split(";"))
            forward, backward = 1e-3 * _number(node["forward"]), 1e-3 * _number(node["backward"])
            layers[name] = Layer(name, forward, backward, output, _number(node["parameters"]))
        except ValueError as error:
            raise HeterogError(f"{path}:{number}: node '{name}': {error}") from error
    return _in_order(path, layers)


def read_partitioning(path) -> list[Layer]:
    """Training graphs of "Efficient Algorithms for Device Placement of DNN Graph Operators":
    forward and backward nodes, which a colour class joins; times in milliseconds. Backward nodes of
    no forward node's class count for all layers, in proportion to their forward times."""
    try:
        file = json.loads(_text(path))
        nodes = {
            node["id"]: node
            | {"fpgaLatency": _number(node["fpgaLatency"]), "size": _number(node["size"]),
               "isBackwardNode": bool(node["isBackwardNode"])}
            for node in file["nodes"]
        }  # fmt: skip
        edges = [(edge["sourceId"], edge["destId"], _number(edge["size"])) for edge in file["edges"]]
    except (ValueError, KeyError, TypeError) as error:
        raise HeterogError(
            f"{path}: expected nodes with 'id', 'fpgaLatency', 'size' and 'isBackwardNode', and edges "
            f"with 'sourceId', 'destId' and 'size' ({type(error).__name__}: {error})"
        ) from error
    forward = {i: node for i, node in nodes.items() if not node["isBackwardNode"]}
    if len(forward) == len(nodes):
        raise HeterogError(f"{path}: no backward nodes; expected a training graph, not one of inference")
    members: dict[int, int] = {}
    for node in forward.values():
        if "colorClass" in node:
            members[node["colorClass"]] = members.get(node["colorClass"], 0) + 1
    seconds_of_class = dict.fromkeys(members, 0.0)
    others = 0.0
    for node in nodes.values():
        if not node["isBackwardNode"]:
            continue
        if node.get("colorClass") in members:
            seconds_of_class[node["colorClass"]] += 1e-3 * node["fpgaLatency"]
        else:
            others += 1e-3 * node["fpgaLatency"]
    all_forward = 1e-3 * sum(node["fpgaLatency"] for node in forward.values())
    layers = {}
    for i, node in forward.items():
        sizes = [size for source, _, size in edges if source == i]
        output = max(sizes, default=0.0)
        of = node.get("colorClass")
        seconds = 1e-3 * node["fpgaLatency"]
        backward = others * seconds / all_forward if all_forward > 0 else 0.0
        if of in members:
            backward += seconds_of_class[of] / members[of]
        layers[str(i)] = Layer(
            f"{node.get('name', 'node')}_{i}", seconds, backward, output, max(0.0, node["size"] - output),
            [str(source) for source, target, _ in edges if target == i and source in forward],
        )  # fmt: skip
    return _in_order(path, layers)


READERS = {"pipedream": read_pipedream, "partitioning": read_partitioning}


def _number(value) -> float:
    number = float(value)
    if not 0 <= number < math.inf:
        raise ValueError(f"{value}, expected a number of 0 or more")
    return number


def _text(path) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise HeterogError(f"{path}: cannot be read: {error}") from error


def _in_order(path, layers: dict[str, Layer]) -> list[Layer]:
    """What a layer reads comes before it; its inputs by the names of layers, each once."""
    order: list[Layer] = []
    placed: set[str] = set()
    left = dict(layers)
    while left:
        ready = [key for key, layer in left.items() if placed.issuperset(layer.inputs)]
        if not ready:
            raise HeterogError(f"{path}: node '{next(iter(left))}' waits for itself; expected no circles")
        for key in ready:
            order.append(left.pop(key))
        placed.update(ready)
    for layer in order:
        layer.inputs = [layers[key].name for key in dict.fromkeys(layer.inputs)]
    if not order:
        raise HeterogError(f"{path}: no nodes")
    return order
