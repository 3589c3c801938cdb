"""Calls of PyTorch's operators for scripts/fuzz/operators.py: captured from samples, or made up."""

import collections
import contextlib
import random
import sys
import types
import unittest

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

SAMPLES = 24  # of an overload
ELEMENTS = 5000  # of a tensor of a sample
LEAVES = (torch.Tensor, bool, int, float, str, type(None), torch.dtype, torch.device, torch.layout,
          torch.memory_format)  # fmt: skip
DTYPES = [torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool,
          torch.bfloat16, torch.float16, torch.int16, torch.int8, torch.complex64]  # fmt: skip


def numel(shape) -> int:
    product = 1
    for size in shape:
        product *= size
    return product


class Capture(TorchDispatchMode):
    """Keeps the arguments of the calls under it. In inference mode it sees composite operators too."""

    def __init__(self, calls: dict):
        super().__init__()
        self.calls, self.seen = calls, collections.defaultdict(set)

    def keep(self, name, args, kwargs):
        # Lists of PyTorch's own kinds become plain ones.
        args = [list(x) if isinstance(x, (list, tuple)) else x for x in args]
        leaves, form = tree_flatten((args, dict(kwargs)))
        tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
        if any(x.numel() > ELEMENTS or x.layout != torch.strided for x in tensors):
            return
        if not all(isinstance(x, LEAVES) for x in leaves):
            return
        kind = str([(x.dim(), x.dtype) if isinstance(x, torch.Tensor) else type(x) for x in leaves])
        if kind in self.seen[name] and len(self.calls[name]) > SAMPLES // 2:
            return
        self.seen[name].add(kind)
        leaves = [x.detach().clone() if isinstance(x, torch.Tensor) else x for x in leaves]
        self.calls[name].append((leaves, form))

    def __torch_dispatch__(self, func, _types, args=(), kwargs=None):
        name = str(func)
        if name in self.calls and len(self.calls[name]) < SAMPLES:
            self.keep(name, args, kwargs or {})
        if torch.is_inference_mode_enabled():
            with self:
                result = func.decompose(*args, **kwargs or {})
            if result is not NotImplemented:
                return result
        return func(*args, **kwargs or {})


def more_samples():
    """What PyTorch's samples lack: functions, with what can be differentiated."""
    nn, f, aten = torch.nn, torch.nn.functional, torch.ops.aten
    x = torch.randn(3, 2, 4)
    for cell in (nn.LSTMCell, nn.GRUCell, nn.RNNCell, lambda *a: nn.RNNCell(*a, nonlinearity="relu")):
        yield lambda m=cell(4, 5): m(x[0]), []

    def leaf(*sizes):
        return torch.randn(sizes, requires_grad=True)

    words, starts = torch.randint(0, 7, (6,)), torch.tensor([0, 2, 5])
    for mode in ("sum", "mean", "max"):
        table = leaf(7, 4)
        yield lambda t=table, m=mode: f.embedding_bag(words, t, starts, mode=m, padding_idx=1), [table]
    table, weights = leaf(7, 4), leaf(6)
    yield (
        lambda: f.embedding_bag(words, table, starts, mode="sum", per_sample_weights=weights),
        [table, weights],
    )
    scores, labels = leaf(6, 3, 5), torch.randint(1, 5, (3, 2))
    for targets in (labels, labels.flatten()):
        yield (
            lambda t=targets: f.ctc_loss(scores.log_softmax(-1), t, (6, 5, 6), (2, 2, 2)),
            [scores],
        )
        yield (
            lambda t=targets: aten._ctc_loss.Tensor(
                scores.log_softmax(-1), t, torch.tensor([6, 5, 6]), torch.tensor([2, 2, 2])
            ),
            [scores],
        )
    for sizes, g, dim in (((4, 3), (4, 1), 0), ((4, 3, 2), (1, 1, 2), 2)):
        v, g = leaf(*sizes), leaf(*g)
        yield lambda v=v, g=g, d=dim: aten._weight_norm_interface(v, g, d), [v, g]
    image, one = leaf(2, 3, 4, 4), leaf(3)
    yield lambda: f.rms_norm(image, (4, 4)), [image]
    means = torch.zeros(3), torch.ones(3)
    yield (
        lambda: aten._native_batch_norm_legit_functional(image, one, one, *means, True, 0.1, 1e-5),
        [],
    )
    yield (
        lambda: f.interpolate(image, (7, 9), mode="bicubic", antialias=True),
        [image],
    )
    yield lambda: aten._reshape_alias(image, (6, 16), (16, 1)), []


def samples_of_torch():
    """Functions without arguments, with what can be differentiated."""
    stub = types.ModuleType("expecttest")  # PyTorch's samples import it, and do not need it
    stub.TestCase, stub.assert_expected_inline = unittest.TestCase, None
    sys.modules.setdefault("expecttest", stub)
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        supported = op.supported_dtypes("cpu")
        for dtype in (torch.float32, torch.int64, torch.bool, torch.complex64):
            if dtype not in supported or (dtype == torch.complex64 and torch.float32 in supported):
                continue
            differentiable = dtype.is_floating_point and op.supports_autograd
            try:
                samples = list(op.sample_inputs("cpu", dtype, requires_grad=differentiable))
            except Exception:  # a sample of PyTorch's own that cannot be made here
                continue
            for sample in samples[:: max(1, len(samples) // 16)]:
                leaves = tree_flatten((sample.input, sample.args, sample.kwargs))[0]
                roots = [x for x in leaves if isinstance(x, torch.Tensor) and x.requires_grad]
                yield (
                    lambda op=op, s=sample: op.op(s.input, *s.args, **s.kwargs),
                    roots if differentiable else [],
                )


def capture(names) -> dict:
    """Overload → calls that PyTorch accepts."""
    calls = {name: [] for name in names}
    mode = Capture(calls)
    torch.manual_seed(0)
    for sources in (more_samples(), samples_of_torch()):
        for function, roots in sources:
            with contextlib.suppress(Exception):
                with mode:
                    results = tree_flatten(function())[0]
                    results = [x for x in results if isinstance(x, torch.Tensor) and x.requires_grad]
                    if roots and results:
                        torch.autograd.grad(
                            results, roots, [torch.randn_like(x) for x in results], allow_unused=True
                        )
            with contextlib.suppress(Exception), torch.inference_mode(), mode:
                function()
    return calls


# ------------------------------------------------------------------------------------ made up

INTEGERS = ("ind", "target", "offsets", "lengths", "pivots", "batch_sizes", "labels", "sections")


def made_up(schema, rng: random.Random):
    """Arguments that fit the schema; whether they make sense is chance."""
    sizes = [rng.randrange(1, 5) for _ in range(3)]

    def tensor(name):
        shape = [rng.choice(sizes) for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 3, 4, 5)))]
        if any(part in name for part in INTEGERS):
            return torch.tensor(rng.choices(range(4), k=numel(shape)), dtype=torch.int64).reshape(shape)
        if "mask" in name:
            return torch.zeros(shape, dtype=torch.bool)
        values = [rng.uniform(-2, 2) for _ in range(numel(shape))]
        return torch.tensor(values, dtype=torch.float32).reshape(shape)

    def value(name, kind):
        if kind.startswith("Optional["):
            return None if rng.random() < 0.4 else value(name, kind[9:-1])
        if kind.startswith("List["):
            return [value(name, kind[5:-1]) for _ in range(rng.randrange(0, 5))]
        if kind == "Tensor":
            return tensor(name)
        if kind == "int":
            if name == "dtype":
                return rng.choice(DTYPES)
            if name in ("layout", "memory_format"):
                return torch.strided if name == "layout" else torch.contiguous_format
            return rng.choice((-1, 0, 1, 2, *sizes))
        if kind in ("float", "number"):
            return rng.choice((0.0, 0.5, 1.0, 2.0))
        if kind == "bool":
            return rng.random() < 0.5
        if kind == "Device":
            return torch.device("cpu")
        return rng.choice(("sum", "mean", "bilinear", "reflect", "constant", "none", "L", "amax"))

    args, kwargs = [], {}
    for argument in schema.arguments:
        kind = str(argument.type)
        if "Generator" in kind or (argument.has_default_value() and rng.random() < 0.3):
            if not argument.kwarg_only:
                break
            continue
        made = value(argument.name, kind)
        if argument.kwarg_only:
            kwargs[argument.name] = made
        else:
            args.append(made)
    return tree_flatten((tuple(args), kwargs))
