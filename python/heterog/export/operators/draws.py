"""Operators that draw random numbers: which of them can be run, and how the exporter writes them."""

import contextlib
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from heterog.base.errors import ExportError
from heterog.export.graph.ir import Op, Step, Tensor, replace_tensors, tensors_in
from heterog.export.operators import attention_reference

_aten = torch.ops.aten

# Those whose numbers a plan's devices draw by the place of each element in the batch
# (src/runtime/kernels/draw.cc).
BY_COUNTER = {
    f"aten.{name}"
    for name in """
    native_dropout.default bernoulli.default bernoulli.p bernoulli.Tensor
    rand.default rand_like.default uniform.default
    randn.default randn_like.default normal_functional.default
    normal.float_float normal.Tensor_float normal.float_Tensor normal.Tensor_Tensor
    exponential.default log_normal.default geometric.default cauchy.default
    randint.default randint.low randint_like.default randint_like.low_dtype
    randperm.default multinomial.default rrelu_with_noise_functional.default
    """.split()
}

# The same operator, where it is given no generator of its own.
_WITHOUT_GENERATOR = {
    "generator": "default",
    "low_generator": "low",
    "low_generator_dtype": "low_dtype",
}


def is_random(operator) -> bool:
    tags = getattr(operator, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags


# ---- while a step is traced ----


class DrawsNumbered(TorchDispatchMode):
    """Tells `note` the number of each draw, counted from where the generator's state was last set:
    what torch.utils.checkpoint computes again has the numbers of the first time."""

    def __init__(self, note, where):
        super().__init__()
        self._note = note
        self._where = where  # the path of the module that runs
        self._next = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if not is_random(func):
            return func(*args, **kwargs)
        if any(isinstance(value, torch.Generator) for value in (*args, *kwargs.values())):
            module = self._where()
            raise ExportError(
                f"{f'module {module}' if module else 'the model'}: {func} draws from a generator of "
                "its own, which is no part of a step; leave the generator out"
            )
        self._note(self._next)
        self._next += 1
        try:
            return func(*args, **kwargs)
        finally:
            self._note(None)

    @contextlib.contextmanager
    def states(self):
        """The generator's state is the number of the next draw."""

        def set_state(state):
            self._next = state

        with (
            mock.patch.object(torch, "get_rng_state", lambda: self._next),
            mock.patch.object(torch, "set_rng_state", set_state),
        ):
            yield


def _random_into(self, low, high):
    return self.copy_(torch.randint_like(self, low, high))


def past_largest(dtype: torch.dtype) -> int:
    """random_ draws the integers below it that the type holds; of a float, those without a gap."""
    if dtype == torch.bool:
        return 2
    if dtype.is_floating_point:
        return round(2 / torch.finfo(dtype).eps)
    return min(torch.iinfo(dtype).max + 1, 2**63 - 1)


def decompositions() -> dict:
    """random_ as randint_like: FX cannot write an overload that is called `from`."""
    return {
        _aten.random_.default: lambda self, generator=None: _random_into(
            self, 0, past_largest(self.dtype)
        ),
        _aten.random_.to: lambda self, to, generator=None: _random_into(self, 0, to),
        getattr(_aten.random_, "from"): lambda self, low, to, generator=None: _random_into(
            self, low, past_largest(self.dtype) if to is None else to
        ),
    }


# ---- in the graph ----


def drop_generators(step: Step) -> None:
    """`generator=None` in Python chooses an overload that asks for one."""
    for op in step.ops:
        packet, overload = op.target.overloadpacket, op.target._overloadname
        if is_random(op.target) and overload in _WITHOUT_GENERATOR:
            op.target = getattr(packet, _WITHOUT_GENERATOR[overload])
            op.kwargs.pop("generator", None)


def share_recomputed(step: Step) -> None:
    """What the backward pass draws again, as part of a forward pass that it repeats, is what was
    drawn first: it is read from there."""
    first: dict = {}
    mapping: dict[Tensor, Tensor] = {}
    kept = []
    for op in step.ops:
        if op.draw is None or not is_random(op.target):
            kept.append(op)
            continue
        before: Op | None = first.setdefault((op.draw, op.target), op)
        if op.phase == "backward" and before.phase == "forward":
            mapping.update(zip(op.outputs, before.outputs, strict=True))
        else:
            kept.append(op)
    step.ops = kept
    for op in step.ops:
        if any(tensor in mapping for tensor in tensors_in([op.args, op.kwargs])):
            op.args = replace_tensors(op.args, mapping)
            op.kwargs = replace_tensors(op.kwargs, mapping)


def check_random(step: Step) -> None:
    """Numbers that no plan can draw alike on its devices are refused."""
    for op in step.ops:
        if is_random(op.target) and str(op.target) not in BY_COUNTER | {attention_reference.FORWARD}:
            where = f"module {op.scope}" if op.scope else f"{op.phase} of the model"
            raise ExportError(
                f"{where}: {op.target} draws random numbers in a way that devices cannot repeat "
                "for their own part of the batch; draw them outside the step and pass them in as "
                "inputs, or put the module in eval()"
            )
