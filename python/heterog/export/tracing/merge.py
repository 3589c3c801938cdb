"""Compares the traces of a step at several batch sizes and makes one graph for all of them."""

import operator

import torch

from heterog.base.errors import ExportError, unexpected
from heterog.export.graph.affine import Affine, Product, Reciprocal, fit_product, fit_scalar, fit_size
from heterog.export.graph.ir import Op, Scalar, Size, Step, Tensor, as_sizes, contiguous_strides
from heterog.export.tracing.constants import fit_constant, has_values
from heterog.export.tracing.trace import Trace

_aten = torch.ops.aten

# What the file format has names for.
DTYPES = (
    "float16", "bfloat16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64", "bool"
)  # fmt: skip

# Operators whose Scalar arguments are row numbers, not arithmetic.
_INDEX_MAKERS = {_aten.arange}
# Operators that may take a product one factor after the other.
_IN_FACTORS = {_aten.mul.Tensor, _aten.mul.Scalar, _aten.div.Tensor, _aten.div.Scalar}


def merge_traces(traces: list[Trace]) -> Step:
    """One graph with every size a·B + c; an error where the traces differ in anything else."""
    merger = Merger([trace.module for trace in traces], [trace.batch for trace in traces])
    outputs = merger.run([(slot.name, slot.role) for slot in traces[0].slots])
    for trace in traces[1:]:
        if trace.results != traces[0].results:
            raise ExportError(
                f"loss_fn: at batch {trace.batch} it returns other outputs than at batch "
                f"{traces[0].batch}; expected the same names"
            )
    step = Step(merger.inputs, merger.ops, None, {}, {}, {})
    for tensor, result in zip(outputs, traces[0].results, strict=True):
        if result.kind == "loss":
            step.loss = tensor
            continue
        if result.kind == "output":
            step.outputs[result.name] = tensor
            continue
        of = merger.inputs[traces[0].slots.index(result.of)]
        {"gradient": step.gradients, "next": step.next, "written": step.written}[result.kind][of] = (
            tensor
        )
    return step


class Merger:
    """Reads the same graph, traced at several batch sizes (or at one), into tensors and ops."""

    def __init__(self, modules: list, batches: list[int], prefix: str = ""):
        self.modules = modules
        self.batches = tuple(batches)
        self.prefix = prefix  # of every name
        # Node of the first graph → Tensor, or a list of them where an operator returns several.
        self.values: dict[torch.fx.Node, object] = {}
        self.inputs: list[Tensor] = []
        self.ops: list[Op] = []
        self.constants: dict[object, Tensor] = {}

    def run(self, inputs: list) -> list[Tensor]:
        """Adds the operators; returns the outputs. Each input: a Tensor, or (name, role) of one."""
        columns = [list(module.graph.nodes) for module in self.modules]
        inputs = iter(inputs)
        for nodes in zip(*columns, strict=False):
            self._check_same_target(nodes)
            if nodes[0].op == "output":
                return [self.values[node] for node in nodes[0].args[0]]
            try:
                self._add(nodes, inputs)
            except ExportError:
                raise
            except Exception as error:
                where = f"{_place(nodes[0])}: {_describe(nodes[0])}"
                raise unexpected(where, error) from error
        raise ExportError(
            f"batch sizes {self.batches}: the step has {[len(c) for c in columns]} operators; their "
            "number must not depend on the batch"
        )

    def _add(self, nodes, inputs) -> None:
        first = nodes[0]
        if first.op == "placeholder":
            self._placeholder(nodes, next(inputs))
        elif first.op == "get_attr":
            modules = zip(self.modules, nodes, strict=True)
            self._constant(nodes, [getattr(module, node.target) for module, node in modules])
        elif first.op == "call_function":
            if first.target is operator.getitem:
                self.values[first] = self.values[first.args[0]][first.args[1]]
            else:
                self._call(nodes)

    def _check_same_target(self, nodes) -> None:
        first = nodes[0]
        for batch, node in zip(self.batches[1:], nodes[1:], strict=True):
            if node.op != first.op or (first.op == "call_function" and node.target != first.target):
                raise ExportError(
                    f"{_place(first)}: at batch {self.batches[0]} the step runs "
                    f"{_describe(first)}, at batch {batch} {_describe(node)}; the operators must "
                    "not depend on the batch size"
                )

    def _placeholder(self, nodes, given) -> None:
        if isinstance(given, tuple):
            name, role = given
            if role == "constant":
                self._constant(nodes, [node.meta["constant"] for node in nodes])
                return
            given = self._tensor(name, role, nodes, [node.meta["val"] for node in nodes])
        self.inputs.append(given)
        self.values[nodes[0]] = given

    def _constant(self, nodes, column: list[torch.Tensor]) -> None:
        """A tensor that the model made of Python numbers: an operator that fills, or a table."""
        first = nodes[0]
        if not first.users:
            return
        user = next(iter(first.users))
        fitted = fit_constant(self.batches, column) if all(map(has_values, column)) else None
        if fitted is None:
            shapes = [list(value.shape) for value in column]
            raise ExportError(
                f"{_place(user)}: a tensor that is made of numbers while the step runs, of shape "
                f"{shapes[0]}, is another at another batch size, and not one number everywhere that "
                "follows the batch; compute it from the inputs, or register it as a buffer of the "
                "module"
            )
        dtype = column[0].dtype
        if str(dtype).removeprefix("torch.") not in DTYPES:
            raise ExportError(f"{_place(user)}: a constant is a tensor of {dtype}; a graph has "
                              f"tensors of {', '.join(DTYPES)}")  # fmt: skip
        name = self.prefix + f"constant/{len(self.constants)}"
        if isinstance(fitted, torch.Tensor):
            key = (dtype, tuple(fitted.shape), fitted.cpu().view(torch.uint8).numpy().tobytes()
                   if fitted.dim() else repr(fitted.item()))  # fmt: skip
            if key not in self.constants:
                shape, strides = list(fitted.shape), list(fitted.stride())
                self.constants[key] = Tensor(name, "buffer", dtype, shape, strides, constant=fitted)
                self.inputs.append(self.constants[key])
            self.values[first] = self.constants[key]
            return
        output = Tensor(name, "activation", dtype, fitted.shape, contiguous_strides(fitted.shape))
        self.constants[output] = output
        number = fitted.value
        op = Op(
            output.name,
            _aten.full.default,
            [as_sizes(fitted.shape), Scalar(number) if isinstance(number, (Affine, Reciprocal)) else number],
            {"dtype": dtype, "device": torch.device("cpu")},
            [output],
            *_annotation(user),
        )
        self.ops.append(op)
        self.values[first] = output

    def _call(self, nodes) -> None:
        first = nodes[0]
        schema = first.target._schema
        index_maker = first.target.overloadpacket in _INDEX_MAKERS
        types = {argument.name: str(argument.type) for argument in schema.arguments}
        # A trace leaves out what is the default at its batch.
        defaults = [argument.default_value for argument in schema.arguments]
        by_key = {argument.name: argument.default_value for argument in schema.arguments}
        args = [
            self._argument(
                first,
                [node.args[i] if i < len(node.args) else defaults[i] for node in nodes],
                str(schema.arguments[i].type),
                index_maker,
            )
            for i in range(max(len(node.args) for node in nodes))
        ]
        kwargs = {
            key: self._argument(
                first, [node.kwargs.get(key, by_key[key]) for node in nodes], types[key], index_maker
            )
            for key in {key: None for node in nodes for key in node.kwargs}
        }
        op = Op(self.prefix + first.name, first.target, args, kwargs, [], *_annotation(first))
        op.draw = (first.meta.get("custom") or {}).get("draw")
        self.values[first] = self._results(op, nodes, [node.meta.get("val") for node in nodes])
        self._split_products(op)
        self.ops.append(op)

    def _split_products(self, op: Op) -> None:
        """x / (f·g) as x / f / g, and x · (f·g) as x · f · g: the file has no products."""
        if len(op.args) < 2 or not isinstance(op.args[1], Product):
            return
        *factors, last = op.args[1].factors
        (result,) = op.outputs
        value = op.args[0]
        for number, factor in enumerate(factors):
            name = f"{op.name}.factor{number}"
            part = Tensor(name, "activation", result.dtype, result.shape, result.strides)
            args = [value, _scalar(factor)]
            self.ops.append(Op(name, op.target, args, {}, [part], op.phase, op.scope, op.sequence))
            value = part
        op.args[:2] = [value, _scalar(last)]

    def _results(self, op: Op, nodes, values):
        """What the operator returns, in its form; `op.outputs` gets the same, flat."""
        first = values[0]
        if not isinstance(first, (list, tuple)):
            count = len(op.outputs)
            name = op.name if count == 0 else f"{op.name}.{count}"
            op.outputs.append(self._tensor(name, "activation", nodes, values))
            return op.outputs[-1]
        for value in values:
            if len(value) != len(first):
                raise ExportError(
                    f"{_place(nodes[0])}: {nodes[0].target} returns {len(first)} tensors at batch "
                    f"{self.batches[0]} and {len(value)} at another; the number must not depend on "
                    "the batch"
                )
        return [self._results(op, nodes, [value[i] for value in values]) for i in range(len(first))]

    def _tensor(self, name, role, nodes, values) -> Tensor | None:
        first = values[0]
        if first is None:
            return None
        if not isinstance(first, torch.Tensor):
            raise ExportError(
                f"{_place(nodes[0])}: {nodes[0].target} returns {type(first).__name__}, not a "
                "tensor; compute it with tensors"
            )
        if str(first.dtype).removeprefix("torch.") not in DTYPES:
            what = f"input {name}" if nodes[0].op == "placeholder" else _place(nodes[0])
            made = "" if nodes[0].op == "placeholder" else f"{nodes[0].target} makes a tensor of "
            raise ExportError(
                f"{what}: {made}{first.dtype}; a graph has tensors of {', '.join(DTYPES)}"
            )
        for value in values[1:]:
            if value.dtype != first.dtype or value.dim() != first.dim():
                raise ExportError(
                    f"{_place(nodes[0])}: {name} is {_type(first)} at batch {self.batches[0]} and "
                    f"{_type(value)} at another; its type must not depend on the batch"
                )
        return Tensor(
            name,
            role,
            first.dtype,
            [self._size(nodes[0], name, column) for column in zip(*[v.shape for v in values])],
            [self._size(nodes[0], name, column) for column in zip(*[v.stride() for v in values])],
        )

    def _size(self, node, name, column):
        fitted = fit_size(self.batches, list(column))
        if fitted is None:
            what = f"input {name}" if node.op == "placeholder" else f"{_place(node)}: {node.target}"
            raise ExportError(
                f"{what}: a size is {list(column)} at batch sizes {list(self.batches)}, not a*B+c "
                "with whole a and c; make every size affine in the batch"
            )
        return fitted

    def _argument(self, node, column, kind, index_maker):
        first = column[0]
        if isinstance(first, torch.fx.Node):
            if any(not isinstance(value, torch.fx.Node) for value in column):
                raise _differs(node)
            return self.values[first]
        if isinstance(first, (list, tuple)):
            if any(len(value) != len(first) for value in column):
                raise _differs(node)
            return [self._argument(node, list(c), kind, index_maker) for c in zip(*column)]
        if any(type(value) is not type(first) for value in column):
            raise _differs(node)
        if isinstance(first, bool) or not isinstance(first, (int, float)):
            if any(value != first for value in column[1:]):
                raise _differs(node)
            return first
        if all(value == first or (value != value and first != first) for value in column):
            return first
        shape_like = isinstance(first, int) and (
            "Sym" in kind or "int" in kind or "Int" in kind or index_maker
        )
        if shape_like:
            return Size(self._size(node, node.name, column))
        fitted = fit_scalar(self.batches, list(column))
        if fitted is None and node.target in _IN_FACTORS:
            fitted = fit_product(self.batches, list(column))
            if fitted is not None:
                return fitted
        if fitted is None:
            raise ExportError(
                f"{_place(node)}: {node.target} uses the number {list(column)} at batch sizes "
                f"{list(self.batches)}, neither a*B+c nor k/(a*B+c); compute it from the batch size "
                "in one of these forms, or divide a sum by one size after the other"
            )
        return Scalar(fitted)


def _scalar(number):
    return Scalar(number) if isinstance(number, (Affine, Reciprocal)) else number


def _annotation(node) -> tuple:
    custom = node.meta.get("custom") or {"phase": "forward", "scope": "", "sequence": None}
    return custom["phase"], custom["scope"], custom["sequence"]


def _place(node) -> str:
    phase, scope, _ = _annotation(node)
    return f"module {scope}" if scope else f"{phase} of the model"


def _describe(node) -> str:
    if node.op == "call_function":
        return str(node.target)
    return "a constant" if "constant" in node.meta else node.op


def _type(tensor) -> str:
    return f"{tensor.dtype} of {tensor.dim()} dimensions"


def _differs(node) -> ExportError:
    return ExportError(
        f"{_place(node)}: an argument of {node.target} has another form at another batch size; the "
        "operators must not depend on the batch size"
    )
