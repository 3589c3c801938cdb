"""Large tensors that follow from nothing that is fed in, such as masks: no values while a step is traced.

They are made of numbers and sizes, so Python may ask what they hold. It hardly ever does: their
operators are recorded like all others, and computed where it does.
"""

import torch
from torch.fx.experimental.proxy_tensor import (
    disable_proxy_modes_tracing,
    get_proxy_mode,
    get_proxy_slot,
    set_proxy_slot,
)

from heterog.export.operators.draws import is_random

# A mask of 64 samples by 16,384 tokens is computed at once.
LARGEST_WITH_VALUES = 1 << 20


def without_values(tensor: torch.Tensor, fake_mode) -> torch.Tensor:
    """The same tensor without values, if it is large and recorded: what is computed from it costs
    nothing then."""
    if tensor.numel() <= LARGEST_WITH_VALUES or tensor.requires_grad:
        return tensor
    mode = get_proxy_mode()
    slot = None if mode is None else get_proxy_slot(tensor, mode.tracer, None)
    if slot is None or slot.constant is not None:
        return tensor
    with disable_proxy_modes_tracing(), fake_mode:
        twin = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
    set_proxy_slot(twin, mode.tracer, slot)
    return twin


def values_of(tensors: list[torch.Tensor]) -> list[torch.Tensor] | None:
    """Computes them by the operators that made them; None: they follow from what is fed in, or from
    random numbers."""
    mode = get_proxy_mode()
    if mode is None:
        return None
    slots = [get_proxy_slot(tensor, mode.tracer, None) for tensor in tensors]
    if None in slots:
        return None
    wanted = [slot.proxy.node for slot in slots]
    graph = mode.tracer.graph
    needed, known = _ancestors(wanted)
    # What is written into one of them, or into a view of it, counts too.
    writes = [(node, _written(node)) for node in graph.nodes if _written(node)]
    before: set = set()
    while known and needed != before:
        before = set(needed)
        for write, into in writes:
            if _ancestors(into)[0] & needed:
                sources, all_known = _ancestors([write])
                needed, known = needed | sources, known and all_known
    if not known:
        return None
    found: dict = {}
    with disable_proxy_modes_tracing(), torch.no_grad():
        for node in graph.nodes:
            if node not in needed:
                continue
            if node.op == "get_attr":
                found[node] = getattr(mode.tracer.root, node.target).clone()
            else:
                args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), found.__getitem__)
                found[node] = node.target(*args, **kwargs)
    return [found[node] for node in wanted]


def _ancestors(nodes: list) -> tuple[set, bool]:
    """With the nodes themselves, and whether none of them is fed in or random."""
    found, open_nodes, known = set(), list(nodes), True
    while open_nodes:
        node = open_nodes.pop()
        known &= node.op in ("call_function", "get_attr") and not is_random(node.target)
        if node not in found:
            found.add(node)
            open_nodes += node.all_input_nodes
    return found, known


def _written(node) -> list:
    """The nodes whose tensors it writes into."""
    if not isinstance(node.target, torch._ops.OpOverload) or not node.target._schema.is_mutable:
        return []
    arguments = zip(node.target._schema.arguments, node.args)
    return [a for s, a in arguments if s.alias_info is not None and s.alias_info.is_write
            and isinstance(a, torch.fx.Node)]  # fmt: skip
