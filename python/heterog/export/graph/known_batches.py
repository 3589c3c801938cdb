"""For which batches a graph is known to hold: those that it was traced at, and those for which a trace
with a symbolic batch shows that every decision and every size is the same."""

import itertools
import math
import operator

import sympy
import torch
from torch.utils._pytree import tree_leaves
from torch.utils._sympy.functions import (
    CeilDiv, CleanDiv, FloatTrueDiv, FloorDiv, IntTrueDiv, Max, Min, Mod, PythonMod, ToFloat,
)  # fmt: skip

from heterog.export.graph.affine import Affine, Product, Reciprocal, fit_product, fit_scalar, fit_size

# Conditions that are no bounds on the batch itself (B % 7 == 0) are tried batch by batch up to here.
MOST_TRIED = 1 << 16
# A graph that holds in more pieces is known up to the last of these.
MOST_RANGES = 64

Range = tuple[int, int | None]  # from, and up to and with; None: all from there on


class Unlike(Exception):
    """The trace with a symbolic batch is another one; nothing follows from it."""


# ---- conditions ----


def conditions_of(batches: tuple[int, ...], graphs: list, symbolic) -> set[sympy.Basic]:
    """Under which every size and number of the symbolic trace is what was fitted to those of the
    graphs, node by node. `batches`: at which the graphs were traced."""
    found: set[sympy.Basic] = set()
    columns = [_Column(graph) for graph in graphs]
    theirs = _Column(symbolic)
    if any(len(column.nodes) != len(theirs.nodes) for column in columns):
        raise Unlike
    for nodes, node in zip(zip(*[column.nodes for column in columns]), theirs.nodes):
        if node.op != nodes[0].op or (node.op == "call_function" and node.target != nodes[0].target):
            raise Unlike
        arguments = [column.places_of(each) for column, each in zip(columns, nodes, strict=True)]
        if any(places != theirs.places_of(node) for places in arguments):
            raise Unlike
        if node.op == "output":
            continue
        _compare_values([n.meta.get("val") for n in nodes], node.meta.get("val"), batches, found)
        if node.op == "call_function" and node.target is operator.getitem:
            if any(each.args[1] != node.args[1] for each in nodes):
                raise Unlike
        elif node.op == "call_function":
            _compare_arguments(nodes, node, batches, found)
        elif "constant" in nodes[0].meta:
            _compare_constants([n.meta["constant"] for n in nodes], node.meta["constant"])
    return found


class _Column:
    """The nodes of a graph that make tensors, without those that hand on what they are given:
    `x[:, 0]` takes a slice of all rows where it cannot be seen that it is all, and a dropout of rate 0
    copies its gradient where it cannot be seen that there are elements."""

    def __init__(self, graph: torch.fx.Graph):
        self.nodes: list[torch.fx.Node] = []
        self._places: dict[torch.fx.Node, int] = {}
        needed = _needed(graph)
        for node in graph.nodes:
            if node not in needed:
                continue
            if _hands_on(node):
                self._places[node] = self._places[node.args[0]]
            else:
                self._places[node] = len(self.nodes)
                self.nodes.append(node)

    def places_of(self, node: torch.fx.Node) -> list[int]:
        """Of its operands that are tensors."""
        return [self._places[n] for n in tree_leaves((node.args, node.kwargs)) if n in self._places]


def _needed(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """Nodes that make tensors, but for those of which nothing but sizes are read."""
    needed: set[torch.fx.Node] = set()
    for node in reversed(graph.nodes):
        if _is_number(node):
            continue
        if node.op in ("output", "placeholder") or node in needed or node.is_impure():
            needed.add(node)
            needed |= {n for n in node.all_input_nodes if not _is_number(n)}
    return needed


def _hands_on(node: torch.fx.Node) -> bool:
    if node.op != "call_function" or node.target not in _HANDING_ON:
        return False
    if node.target is _aten.alias.default or node.target is _aten.clone.default:
        return True
    one, other = node.args[0].meta["val"], node.meta["val"]
    return all(_equal_sizes(*pair) for pair in zip(one.shape, other.shape, strict=True))


_aten = torch.ops.aten
_HANDING_ON = (
    _aten.alias.default, _aten.clone.default, _aten.slice.Tensor, _aten.slice_backward.default,
)  # fmt: skip


def _equal_sizes(one, other) -> bool:
    exprs = [x.node.expr if isinstance(x, torch.SymInt) else x for x in (one, other)]
    return exprs[0] == exprs[1]


def _is_number(node: torch.fx.Node) -> bool:
    """Arithmetic on sizes, which a trace at one batch does while it is made."""
    return isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool, int, float))


def _compare_values(column: list, symbolic, batches, found: set) -> None:
    theirs = tree_leaves(symbolic)
    ours = [tree_leaves(value) for value in column]
    if any(len(leaves) != len(theirs) for leaves in ours):
        raise Unlike
    for tensors, tensor in zip(zip(*ours), theirs):
        if not isinstance(tensor, torch.Tensor):
            continue
        if any(t.dtype != tensor.dtype or t.dim() != tensor.dim() for t in tensors):
            raise Unlike
        for dims, dim in zip(zip(*[t.shape for t in tensors]), tensor.shape):
            _same(list(dims), dim, batches, found)
        for axis, strides in enumerate(zip(*[t.stride() for t in tensors])):
            if any(t.shape[axis] > 1 for t in tensors):
                _same(list(strides), tensor.stride(axis), batches, found)


def _compare_arguments(nodes, node, batches, found: set) -> None:
    schema = node.target._schema.arguments
    defaults = {argument.name: argument.default_value for argument in schema}
    for place, argument in enumerate(schema):
        column = [_given(each, place, argument, defaults) for each in nodes]
        theirs = tree_leaves(_given(node, place, argument, defaults))
        ours = [tree_leaves(value) for value in column]
        if any(len(leaves) != len(theirs) for leaves in ours):
            raise Unlike
        for leaves, leaf in zip(zip(*ours), theirs):
            if isinstance(leaf, torch.fx.Node):
                if not _is_number(leaf):
                    continue
                leaf = leaf.meta["val"]
            _same(list(leaves), leaf, batches, found)


def _given(node, place: int, argument, defaults):
    if place < len(node.args):
        return node.args[place]
    return node.kwargs.get(argument.name, defaults[argument.name])


def _compare_constants(column: list[torch.Tensor], symbolic: torch.Tensor) -> None:
    """Numbers that follow the batch are none in a table."""
    if any(c.shape != symbolic.shape or not torch.equal(c, symbolic) for c in column):
        raise Unlike


def _same(column: list, symbolic, batches, found: set) -> None:
    first = column[0]
    if isinstance(symbolic, (torch.SymInt, torch.SymFloat)):
        if not all(isinstance(value, (int, float)) for value in column):
            raise Unlike
        whole = all(isinstance(value, int) for value in column)
        fitted = fit_size(batches, column) if whole else None
        fitted = fit_scalar(batches, column) if fitted is None else fitted
        fitted = fit_product(batches, column) if fitted is None else fitted
        if fitted is None:
            raise Unlike
        found.add(_equal(symbolic.node.expr, fitted))
    elif any(type(value) is not type(first) or value != first for value in column):
        raise Unlike
    elif type(symbolic) is not type(first) or (symbolic != first and first == first):
        raise Unlike


def _equal(expression: sympy.Expr, fitted) -> sympy.Basic:
    """That an expression is what was fitted; true where sympy sees that it always is."""
    (symbol,) = expression.free_symbols or (None,)
    if symbol is None:
        return sympy.true if expression == fitted else sympy.false
    if isinstance(fitted, Affine) and isinstance(fitted.a, int) and isinstance(fitted.c, int):
        value = fitted.a * symbol + fitted.c
        if sympy.expand(expression - value) == 0:
            return sympy.true
        return sympy.Eq(expression, value, evaluate=False)
    if isinstance(fitted, int):
        return sympy.Eq(expression, fitted, evaluate=False)
    return sympy.true if _is_fitted(expression, fitted, symbol) else _Near(expression, fitted)


_QUOTIENTS = (IntTrueDiv, FloatTrueDiv)


def _is_fitted(expression, fitted, symbol) -> bool:
    """Whether a number is the fitted one at every batch: both are lines, or both a number over a line."""
    if isinstance(fitted, Affine):
        line = _line(expression, symbol)
        return line is not None and _alike(line, (fitted.a, fitted.c))
    if isinstance(fitted, Reciprocal) and expression.func in _QUOTIENTS:
        over, under = (_line(part, symbol) for part in expression.args)
        if over is None or under is None or over[0] != 0:
            return False
        line = (fitted.over.a, fitted.over.c)
        return _alike([over[1] * x for x in line], [fitted.k * x for x in under])
    if isinstance(fitted, Product):
        ratio = sympy.cancel(_plain(expression) / fitted.at(symbol))
        return bool(ratio.is_number) and _alike([float(ratio)], [1.0])
    return False


def _plain(expression):
    """Without the functions that PyTorch has for quotients and for numbers that become floats."""
    for function in _QUOTIENTS:
        expression = expression.replace(function, lambda over, under: over / under)
    return expression.replace(ToFloat, lambda number: number)


def _line(expression, symbol) -> tuple[float, float] | None:
    """a and c of a·B + c; None: it is no line."""
    plain = sympy.expand(expression.replace(ToFloat, lambda number: number))
    a = plain.coeff(symbol, 1)
    c = sympy.expand(plain - a * symbol)
    return (float(a), float(c)) if a.is_number and c.is_number else None


def _alike(ours, theirs) -> bool:
    return all(math.isclose(x, y, rel_tol=1e-10, abs_tol=1e-300) for x, y in zip(ours, theirs))


class _Near(sympy.Basic):
    """That a number is what was fitted, but for rounding."""

    def __new__(cls, expression, fitted):
        made = super().__new__(cls, expression)
        made.fitted = fitted
        return made

    def _hashable_content(self):
        return (self.args[0], self.fitted)


# ---- where they hold ----


def ranges(conditions, symbol: sympy.Symbol, traced: tuple[int, ...]) -> list[Range]:
    """Of all batches from the smallest traced one on, those for which all conditions are true, and
    those that were traced."""
    low, high = min(traced), None
    left_out: set[int] = set()
    others = []
    for condition in conditions:
        bounds = _bounds(condition, symbol)
        if bounds is None:
            others.append(condition)
            continue
        low, high = max(low, bounds[0]), _least(high, bounds[1])
        left_out |= bounds[2]
    last = high if high is not None and not others else min(MOST_TRIED, high or MOST_TRIED)
    found: list[Range] = []
    if not others:
        begin = low
        for gap in sorted(n for n in left_out if n >= low):
            if high is not None and gap > high:
                break
            if gap > begin:
                found.append((begin, gap - 1))
            begin = gap + 1
        if high is None or begin <= high:
            found.append((begin, high))
    else:
        tests = [_evaluator(condition, symbol) for condition in others]
        holds = (n for n in range(low, last + 1)
                 if n not in left_out and all(test(n) for test in tests))  # fmt: skip
        found = list(itertools.islice(_joined_up(holds), MOST_RANGES))
    return joined(found[:MOST_RANGES] + [(batch, batch) for batch in traced])


def joined(found: list[Range]) -> list[Range]:
    """The same batches, in ascending ranges that do not touch."""
    made: list[Range] = []
    for begin, end in sorted(found, key=lambda r: r[0]):
        if made and (made[-1][1] is None or begin <= made[-1][1] + 1):
            before = made[-1][1]
            made[-1] = (made[-1][0], None if before is None or end is None else max(before, end))
        else:
            made.append((begin, end))
    return made


def holds_at(found: list, batch: int) -> bool:
    return any(begin <= batch and (end is None or batch <= end) for begin, end in found)


def in_words(found: list) -> str:
    """`2 to 16, 64, 100 and more`"""
    texts = []
    for begin, end in found:
        if end is None:
            texts.append(f"{begin} and more")
        else:
            texts.append(f"{begin}" if begin == end else f"{begin} to {end}")
    return ", ".join(texts)


def _joined_up(batches):
    """Ranges of ascending numbers."""
    begin = end = None
    for batch in batches:
        if begin is None:
            begin = end = batch
        elif batch == end + 1:
            end = batch
        else:
            yield begin, end
            begin = end = batch
    if begin is not None:
        yield begin, end


def _least(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


def _bounds(condition, symbol) -> tuple[int, int | None, set[int]] | None:
    """From, up to, and which not, of a condition on the symbol times a number; None: it is another."""
    if condition in (True, sympy.true):
        return 0, None, set()
    if condition in (False, sympy.false):
        return 1, 0, set()
    if not isinstance(condition, sympy.core.relational.Relational):
        return None
    line = sympy.expand(condition.lhs - condition.rhs)
    a = line.coeff(symbol, 1)
    c = line - a * symbol
    if not (a.is_Integer and sympy.expand(c).is_Integer) or a == 0:
        return None
    at = sympy.Rational(-sympy.expand(c), a)  # where both sides are equal
    whole = {int(at)} if at.is_Integer else set()
    if isinstance(condition, sympy.Ne):
        return 0, None, whole
    if isinstance(condition, sympy.Eq):
        return (int(at), int(at), set()) if whole else (1, 0, set())
    above = (condition.rel_op in (">", ">=")) == (a > 0)
    strict = whole if condition.rel_op in ("<", ">") else set()
    return (int(math.ceil(at)), None, strict) if above else (0, int(math.floor(at)), strict)


def _evaluator(condition, symbol):
    """batch → whether the condition is true there; what cannot be evaluated is not."""
    def holds(batch: int) -> bool:
        try:
            return bool(_value(condition, symbol, batch))
        except (ArithmeticError, KeyError, TypeError, ValueError):
            return False

    return holds


_FUNCTIONS = {
    FloorDiv: lambda a, b: a // b,
    CleanDiv: lambda a, b: a // b,
    CeilDiv: lambda a, b: -(-a // b),
    IntTrueDiv: lambda a, b: a / b,
    FloatTrueDiv: lambda a, b: a / b,
    ToFloat: float,
    Mod: lambda a, b: a % b,
    PythonMod: lambda a, b: a % b,
    sympy.Mod: lambda a, b: a % b,
    Max: max,
    Min: min,
    sympy.Max: max,
    sympy.Min: min,
    sympy.Add: lambda *terms: sum(terms),
    sympy.Mul: lambda *factors: math.prod(factors),
    sympy.And: lambda *parts: all(parts),
    sympy.Or: lambda *parts: any(parts),
    sympy.Not: lambda part: not part,
    sympy.Eq: lambda a, b: a == b,
    sympy.Ne: lambda a, b: a != b,
    sympy.Lt: lambda a, b: a < b,
    sympy.Le: lambda a, b: a <= b,
    sympy.Gt: lambda a, b: a > b,
    sympy.Ge: lambda a, b: a >= b,
}


def _value(expression, symbol, batch: int):
    """In Python's whole numbers and floats."""
    if expression == symbol:
        return batch
    if isinstance(expression, _Near):
        value = _value(expression.args[0], symbol, batch)
        fitted = expression.fitted
        known = isinstance(fitted, (Affine, Reciprocal, Product))
        expected = fitted.at(batch) if known else fitted
        return math.isclose(value, expected, rel_tol=1e-12)
    if expression.is_Integer:
        return int(expression)
    if expression.is_number and not expression.args:
        return float(expression)
    if expression in (sympy.true, sympy.false):
        return expression == sympy.true
    values = [_value(part, symbol, batch) for part in expression.args]
    if isinstance(expression, sympy.Pow) and values[1] >= 0:
        return values[0] ** values[1]
    return _FUNCTIONS[expression.func](*values)
