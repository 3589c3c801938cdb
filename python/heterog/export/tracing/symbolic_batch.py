"""Traces a step with a batch size that is a symbol: what Python and PyTorch decide by it is noted.

A model that is traced at batch 2, 3 and 64 shows nothing of `if len(x) > 100` or of `x.split(80)`. Here
sizes that follow the batch are PyTorch's SymInts over one symbol. They are computed with as numbers,
and each branch on them leaves a condition under which it goes the same way again.
"""

import builtins
import contextlib
from dataclasses import dataclass
from unittest import mock

import sympy
import torch
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from heterog.export.graph.affine import Affine, fit_size


@dataclass(frozen=True)
class SymbolicBatch:
    """The batch as a symbol, and how the sizes of inputs follow it."""

    environment: ShapeEnv
    mode: FakeTensorMode
    size: torch.SymInt
    # Of each input: its sizes and strides.
    inputs: list[tuple[list[int | Affine], list[int | Affine]]]

    @property
    def symbol(self) -> sympy.Symbol:
        return self.size.node.expr

    def input(self, place: int, dtype: torch.dtype) -> torch.Tensor:
        """A tensor without values, on the CPU, as the input at this place is at any batch."""
        shape, strides = ([self._at(dim) for dim in dims] for dims in self.inputs[place])
        with self.mode:
            return torch.empty_strided(shape, strides, dtype=dtype, device="cpu")

    def _at(self, dim):
        return dim.a * self.size + dim.c if isinstance(dim, Affine) else dim

    def conditions(self) -> list[sympy.Basic]:
        """All that was decided by the batch, in a form that is true where it is decided alike."""
        # A symbol that turned out to be one number has been put in its place ever since.
        found = [sympy.Eq(symbol, value) for symbol, value in self.environment.replacements.items()]
        return found + [guard.expr for guard in self.environment.guards]

    @contextlib.contextmanager
    def watched(self):
        """While a step is traced: Python's own functions keep the symbol, or ask for its value."""
        with (
            mock.patch.object(builtins, "len", _length(builtins.len)),
            mock.patch.object(torch.SymInt, "__str__", _as_number),
            mock.patch.object(torch.SymInt, "__repr__", _as_number),
            mock.patch.object(torch.SymInt, "__format__", _formatted),
            _Made(self.mode),
        ):
            yield


def symbolic_batch(batches: tuple[int, ...], samples: list[tuple], hint: int) -> SymbolicBatch | None:
    """For inputs as they are at the given batches, to be traced as they are at batch `hint`; None
    where their sizes do not follow the batch."""
    inputs = []
    for column in zip(*samples, strict=True):
        sizes = [fit_size(batches, list(dims)) for dims in zip(*[x.shape for x in column])]
        strides = [fit_size(batches, list(dims)) for dims in zip(*[x.stride() for x in column])]
        if None in sizes or None in strides:
            return None
        inputs.append((sizes, strides))
    environment = ShapeEnv(specialize_zero_one=True, duck_shape=False)
    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=environment)
    source = ConstantSource("batch")
    symbol = environment.create_symbol(
        hint, source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None
    )
    size = environment.create_symintnode(symbol, hint=hint, source=source)
    return SymbolicBatch(environment, mode, size, inputs)


class _Made(TorchDispatchMode):
    """Tensors that are made in a size that follows the batch have no values."""

    def __init__(self, mode: FakeTensorMode):
        super().__init__()
        self._mode = mode

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        leaves = tree_leaves((args, kwargs or {}))
        sized = any(isinstance(leaf, torch.SymInt) for leaf in leaves)
        if sized and not any(isinstance(leaf, FakeTensor) for leaf in leaves):
            with self._mode:
                return func(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _length(plain):
    def length(value):
        """`len` of Python turns what it is given into an int."""
        if isinstance(value, torch.Tensor) and value.dim():
            return value.size(0)
        return plain(value)

    return length


def _as_number(size: torch.SymInt) -> str:
    """A model may look something up by the text of a size: that decides on its value."""
    return str(int(size))


def _formatted(size: torch.SymInt, form: str) -> str:
    return format(int(size), form)
