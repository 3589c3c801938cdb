"""Records a function of tensors as a functional graph, in which equal computations are one node."""

import operator

import torch
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.fx.experimental.proxy_tensor import make_fx

from heterog.export.graph.writes import without_writes

_aten = torch.ops.aten

# What comes out of them is their first argument, unless dtype or layout change.
_COPIES = {
    _aten.alias.default,
    _aten.clone.default,
    _aten.detach.default,
    _aten.expand.default,
    _aten.lift_fresh.default,
    _aten.lift_fresh_copy.default,
    _aten._to_copy.default,
}
# Makers of tensors that hold one number everywhere: which number, or at which place it stands.
_ZEROS = {_aten.zeros.default, _aten.zeros_like.default, _aten.new_zeros.default}
_ONES = {_aten.ones.default, _aten.ones_like.default, _aten.new_ones.default}
_FULL = {_aten.full.default: 1, _aten.full_like.default: 1, _aten.new_full.default: 2}
_SMALL = 16  # elements of a constant that are compared


def record(function, arguments: list, mode) -> torch.fx.GraphModule:
    """`arguments`: tensors of `mode` without values. In-place writes become new tensors."""
    with torch.no_grad(), mode:
        recorded = _trace(function, arguments)

        def again(*values):
            return torch.fx.Interpreter(recorded).run(*values)

        found = without_writes(recorded, mode)
        if found is None:
            found = _trace(torch.func.functionalize(again, remove="mutations"), arguments)
    tidy(found)
    return found


def _trace(function, arguments: list):
    with _use_lazy_graph_module(True):
        return make_fx(function, _disable_torch_fn_metadata_mode=True)(*arguments)


def results(module: torch.fx.GraphModule) -> list:
    """The nodes that it returns, and None where one is no tensor."""
    (end,) = [node for node in module.graph.nodes if node.op == "output"]
    return list(end.args[0])


def tidy(module: torch.fx.GraphModule) -> None:
    """Drops copies, equal computations but the first, choices between two that are the same, and
    what nobody reads."""
    seen: dict = {}
    for node in module.graph.nodes:
        if node.op not in ("call_function", "get_attr"):
            continue
        same = _source(node)
        if same is None:
            key = _key(module, node)
            same = seen.setdefault(key, node) if key is not None else node
        if same is not node:
            node.replace_all_uses_with(same)
    module.graph.eliminate_dead_code()


def _source(node) -> "torch.fx.Node | None":
    """The node whose values and layout this one repeats."""
    candidate = None
    if node.target in _COPIES:
        candidate = node.args[0]
    elif node.target is _aten.copy.default:
        candidate = node.args[1]
    elif node.target is _aten.where.self and node.args[1] is node.args[2]:
        candidate = node.args[1]
    if isinstance(candidate, torch.fx.Node) and _form(candidate) == _form(node) is not None:
        return candidate
    return None


def _form(node):
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return None
    strides = [s for s, size in zip(value.stride(), value.shape, strict=True) if size != 1]
    return value.dtype, tuple(value.shape), strides


def _key(module, node):
    if node.op == "get_attr":
        value = getattr(module, node.target)
        if value.numel() > _SMALL or isinstance(value, torch._subclasses.FakeTensor):
            return None
        return "constant", value.dtype, tuple(value.shape), repr(value.flatten().tolist())
    tags = getattr(node.target, "tags", ())
    if node.target is not operator.getitem and torch.Tag.nondeterministic_seeded in tags:
        return None
    return node.target, _argument(node.args), _argument(sorted(node.kwargs.items()))


def _argument(value):
    if isinstance(value, (list, tuple)):
        return tuple(_argument(item) for item in value)
    if isinstance(value, torch.fx.Node):
        return "node", value.name
    return type(value).__name__, repr(value)


def constant(module: torch.fx.GraphModule, node) -> float | int | bool | None:
    """The number that a node holds everywhere, whatever the inputs are; None: there is none."""
    if node.op == "get_attr":
        value = getattr(module, node.target)
        uniform = value.numel() > 0 and bool((value == value.flatten()[0]).all())
        return value.flatten()[0].item() if uniform else None
    if node.op != "call_function" or not isinstance(node.meta.get("val"), torch.Tensor):
        return None
    if node.target in _ZEROS:
        return 0
    if node.target in _ONES:
        return 1
    if node.target in _FULL:
        value = node.args[_FULL[node.target]]
        return None if isinstance(value, torch.fx.Node) else value
    if node.target in _COPIES:
        return constant(module, node.args[0])
    if node.meta["val"].numel() != 1 or node.target is operator.getitem:
        return None
    given: dict = {}
    for argument in node.all_input_nodes:
        value = constant(module, argument)
        form = argument.meta.get("val")
        if value is None:
            return None
        given[argument] = torch.full(form.shape, value, dtype=form.dtype)
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: given[n])
    found = node.target(*args, **kwargs)
    return found.item() if isinstance(found, torch.Tensor) else None


def reads(nodes: list, sources: set) -> bool:
    """Whether what any of the nodes holds depends on the values of any of the sources."""
    open_nodes, seen = [n for n in nodes if isinstance(n, torch.fx.Node)], set()
    while open_nodes:
        node = open_nodes.pop()
        if node in sources:
            return True
        if node in seen or node.target in _ZEROS | _ONES | _FULL.keys():
            continue
        seen.add(node)
        open_nodes += node.all_input_nodes
    return False
