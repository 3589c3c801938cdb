"""Removes in-place writes from a traced graph: what is written is a new tensor for all that comes after.

Most graphs have simple ones alone, into tensors that nobody else looks at by a view: those are
replaced here. All others take a second trace, through functionalisation. Both give one graph.
"""

import operator
from dataclasses import dataclass

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx._lazy_graph_module import _make_graph_module

_aten = torch.ops.aten

# Old batch norms write without saying it.
_UNSAID = {
    _aten.native_batch_norm.default,
    _aten.cudnn_batch_norm.default,
    _aten.miopen_batch_norm.default,
}
# What functionalisation calls by another name.
_INSTEAD = {_aten.lift_fresh_copy.default: _aten.clone.default}
_BATCH_NORM = _aten._native_batch_norm_legit.default


def writes(node: torch.fx.Node) -> bool:
    """Whether an operator changes an argument."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return False
    return node.target._schema.is_mutable or node.target in _UNSAID


def without_writes(module: torch.fx.GraphModule, mode: FakeTensorMode) -> torch.fx.GraphModule | None:
    """The graph that a second trace would make, names included; None: only that can tell."""
    try:
        return _Copy(module, mode).run()
    except _NotSimple:
        return None


class _NotSimple(Exception):
    pass


@dataclass
class _Memory:
    """What one or several tensors lie in."""

    writes: int = 0


@dataclass
class _Place:
    """A tensor of the traced graph: its node in the copy, and where its elements lie."""

    node: torch.fx.Node
    memory: _Memory
    views: list[tuple[torch.fx.Node, int | None]]  # operators from the memory to it, and which result
    seen: int  # writes that it shows


class _Copy:
    """Nodes of the traced graph, one after the other, into another one."""

    def __init__(self, module: torch.fx.GraphModule, mode: FakeTensorMode):
        self.module = module
        self.mode = mode
        self.graph = torch.fx.Graph()
        self.places: dict[torch.fx.Node, _Place] = {}
        self.whole: dict[int, torch.fx.Node] = {}  # by memory, what holds all of it by now
        self.parts: dict[torch.fx.Node, list[_Place]] = {}
        self.custom = None  # the annotation of what is copied

    def run(self) -> torch.fx.GraphModule:
        for node in self.module.graph.nodes:
            self.custom = node.meta.get("custom") or self.custom
            if node.op == "placeholder":
                copied = self.graph.placeholder(f"arg{len(self.places)}_1")
                copied.meta["val"] = node.meta["val"]
                self.places[node] = self._fresh(copied)
                self.places[node].memory.writes = -1  # a write to it is not simple
            elif node.op == "output":
                self.graph.output(self._read(node.args[0]))
            elif node.op != "call_function":
                raise _NotSimple
            elif node.target is operator.getitem:
                self.places[node] = self.parts[node.args[0]][node.args[1]]
            elif not writes(node):
                self._call(node)
            elif node.target is _BATCH_NORM:
                self._batch_norm(node)
            else:
                self._write(node)
        return _make_graph_module(self.module, self.graph)

    def _fresh(self, copied: torch.fx.Node) -> _Place:
        place = _Place(copied, _Memory(), [], 0)
        self.whole[id(place.memory)] = copied
        return place

    def _read(self, argument):
        """Arguments with the nodes of the copy. Views of what was written are made anew, once for
        each write, where they are read."""
        return torch.fx.node.map_arg(argument, self._up_to_date)

    def _up_to_date(self, node) -> torch.fx.Node:
        place = self.places[node]
        if place.memory.writes > max(place.seen, 0):
            place.node = self.whole[id(place.memory)]
            for view, part in place.views:
                args = (place.node, *torch.fx.node.map_arg(view.args[1:], _no_tensor))
                place.node = self._record(view.target, args, dict(view.kwargs), view.meta["val"])
                if part is not None:
                    place.node = self._taken(place.node, view.meta["val"])[part]
            place.seen = place.memory.writes
        return place.node

    def _record(self, target, args, kwargs, value) -> torch.fx.Node:
        # As make_fx names them.
        name = self.graph._target_to_str(target.overloadpacket.__name__)
        made = self.graph.create_node("call_function", target, args, kwargs, name=name)
        made.meta = {"val": value, "custom": self.custom}
        return made

    def _taken(self, node: torch.fx.Node, values) -> list[torch.fx.Node]:
        found = []
        for part, value in enumerate(values):
            found.append(self.graph.call_function(operator.getitem, (node, part)))
            found[-1].meta = {"val": value, "custom": self.custom}
        return found

    def _call(self, node) -> None:
        value, target = node.meta["val"], _INSTEAD.get(node.target, node.target)
        of = None
        if _is_view(target):
            # Functionalisation makes a view of what it is of, up to date or not.
            of = self.places[node.args[0]]
            args = (of.node, *torch.fx.node.map_arg(node.args[1:], _no_tensor))
            copied = self._record(target, args, dict(node.kwargs), value)
        else:
            copied = self._record(target, self._read(node.args), self._read(node.kwargs), value)
        several = isinstance(value, (tuple, list))
        if several and any(isinstance(part, (tuple, list)) for part in value):
            raise _NotSimple  # lists of results
        nodes = self._taken(copied, value) if several else [copied]
        if of is not None:
            made = [
                _Place(n, of.memory, [*of.views, (node, part if several else None)], 0)
                for part, n in enumerate(nodes)
            ]
        else:
            made = [self._fresh(n) for n in nodes]
        if several:
            self.parts[node] = made
        else:
            self.places[node] = made[0]

    def _write(self, node) -> None:
        """x.add_(y) as add(x, y)."""
        schema = node.target._schema
        written = [a.alias_info is not None and a.alias_info.is_write for a in schema.arguments]
        name = node.target.overloadpacket.__name__
        packet = getattr(_aten, name.removesuffix("_"), None)
        functional = getattr(packet, node.target._overloadname, None) if packet else None
        if written != [True] + [False] * (len(written) - 1) or not name.endswith("_"):
            raise _NotSimple
        if functional is None or functional._schema.is_mutable:
            raise _NotSimple
        taken = [(a.name, str(a.type)) for a in functional._schema.arguments]
        if taken != [(a.name, str(a.type)) for a in schema.arguments]:
            raise _NotSimple
        args, kwargs = self._read(node.args), self._read(node.kwargs)
        place = self._written(node.args[0])
        value = self._value(functional, args, kwargs)
        self._replace(place, self._record(functional, args, kwargs, value))
        self.places[node] = place

    def _batch_norm(self, node) -> None:
        functional = _aten._native_batch_norm_legit_functional.default
        if len(node.args) != 8 or not node.args[5]:
            raise _NotSimple
        args = self._read(node.args)
        statistics = [self._written(node.args[place]) for place in (3, 4)]
        value = self._value(functional, args, {})
        nodes = self._taken(self._record(functional, args, {}, value), value)
        for place, new in zip(statistics, nodes[3:], strict=True):
            self._replace(place, new)
        self.parts[node] = [self._fresh(new) for new in nodes[:3]]

    def _written(self, node) -> _Place:
        """All of its memory, no part or view of it."""
        place = self.places[node]
        if place.views or place.memory.writes < 0:
            raise _NotSimple
        return place

    def _replace(self, place: _Place, new: torch.fx.Node) -> None:
        if _form(new.meta["val"]) != _form(place.node.meta["val"]):
            raise _NotSimple
        place.memory.writes += 1
        place.node, place.seen = new, place.memory.writes
        self.whole[id(place.memory)] = new

    def _value(self, target, args, kwargs):
        """What it makes, without values."""

        def given(node):
            value = node.meta["val"]
            if isinstance(value, FakeTensor) and value.fake_mode is self.mode:
                return value
            return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)

        with self.mode, torch.no_grad():
            return target(*torch.fx.node.map_arg(args, given), **torch.fx.node.map_arg(kwargs, given))


def _form(value) -> tuple:
    return value.dtype, value.shape, value.stride()


def _no_tensor(_node):
    raise _NotSimple


def _is_view(target) -> bool:
    if target is _aten._unsafe_view.default:
        return True
    return any(result.alias_info is not None for result in target._schema.returns)
