"""Runs a training step so that parts of a batch can be compared with the whole of it: what depends on
which samples are beside each other by chance or by layers is taken out, and what shows what a loss
counts is noted."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

_aten = torch.ops.aten
_HALF = (torch.float16, torch.bfloat16)
_MEAN = 1  # at::Reduction
# Their draws decide which samples go together, which is what the comparison is to show.
_KEPT = {"aten::randperm", "aten::multinomial"}


@dataclass(frozen=True)
class LabelLoss:
    """A call of cross_entropy or nll_loss with class numbers."""

    target: torch.Tensor  # int, any shape, on the host
    weight: torch.Tensor | None  # of each class
    ignored: int
    is_mean: bool

    def count(self) -> float:
        """The weights of the labels that count, as the mean divides by them."""
        return label_count(self.target, self.weight, self.ignored).item()


def label_count(labels: torch.Tensor, weight: torch.Tensor | None, ignored: int) -> torch.Tensor:
    """The weights of all labels but the ignored ones, added up in float64; one element."""
    counts = labels != ignored
    if weight is None:
        return counts.sum().double()
    labels, counts = labels.to(weight.device), counts.to(weight.device)
    return (weight.detach()[labels.clamp(0, len(weight) - 1)].double() * counts).sum()


class Neutral(TorchDispatchMode):
    """Makes random numbers the same for every sample, and notes what runs.

    Tensors are filled with one number that is drawn for all of their elements, dropout keeps all of
    them (its mean): sample i of a batch sees the same whatever part of the batch it is in. Draws
    take as many of the generator's numbers for a part as for the whole.
    """

    def __init__(self):
        super().__init__()
        self.label_losses: list[LabelLoss] = []
        self.collectives: list[str] = []  # operators that talk to other ranks
        self.drew = False
        self.half = False  # something was computed in half precision

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func._schema.name
        if name.startswith(("c10d::", "_c10d_functional::")):
            self.collectives.append(name.split("::")[1].strip("_"))
        elif name in ("aten::nll_loss_forward", "aten::nll_loss2d_forward"):
            self._note_labels(*args)
        elif name == "aten::native_dropout_backward":
            return args[0].clone()
        names = _argument_names(func)
        for argument in ("dropout_p", "dropout"):  # of attention, of recurrent layers
            if argument in names and name.startswith("aten::") and name != "aten::native_dropout":
                args, kwargs = _without(func, names.index(argument), argument, args, kwargs)
        if torch.Tag.nondeterministic_seeded in func.tags and name not in _KEPT:
            drawn = self._draw(func, name, names, args, kwargs)
            if drawn is not None:
                self.drew = True
                return drawn
        out = func(*args, **kwargs)
        if isinstance(out, torch.Tensor) and out.dtype in _HALF:
            self.half = True
        return out

    def _note_labels(self, _scores, target, weight, reduction, ignored):
        kept = LabelLoss(target.detach().cpu().clone(), weight, ignored, reduction == _MEAN)
        self.label_losses.append(kept)

    def _draw(self, func, name, names, args, kwargs):
        """The same number for all elements; None where this knows no way."""
        if name == "aten::native_dropout":
            return args[0].clone(), torch.ones_like(args[0], dtype=torch.bool)
        if name == "aten::bernoulli_":
            values = args[1] if len(args) > 1 else 0.5
            return args[0].copy_(values) if isinstance(values, torch.Tensor) else args[0].fill_(values)
        if name == "aten::bernoulli":
            return args[0].clone() if len(args) == 1 else torch.full_like(args[0], args[1])
        if name == "aten::normal":
            one = torch.randn(1)
            return args[0] + args[1] * one.to(next(a.device for a in args if hasattr(a, "device")))
        if "size" in names:
            place = names.index("size")
            if place >= len(args):
                return None
            one = func(*args[:place], [1], *args[place + 1 :], **kwargs)
            return one.reshape([1] * len(args[place])).expand(args[place]).clone()
        if not args or not isinstance(args[0], torch.Tensor):
            return None
        if name.endswith("_like"):
            one = func(args[0].new_empty(1), *args[1:], **kwargs)
            return one.reshape([1] * args[0].dim()).expand(args[0].shape).clone()
        if name.endswith("_"):
            one = func(args[0].new_empty(1), *args[1:], **kwargs)
            return args[0].copy_(one.reshape([1] * args[0].dim()))
        return None


def _argument_names(func) -> list[str]:
    return [argument.name for argument in func._schema.arguments]


def _without(func, place: int, name: str, args, kwargs):
    if place < len(args):
        return (*args[:place], 0.0, *args[place + 1 :]), kwargs
    return args, kwargs | ({name: 0.0} if name in kwargs else {})


def batch_norms(model: nn.Module) -> list[nn.Module]:
    """The layers that normalise by the statistics of the batch that a rank has."""
    return [
        m
        for m in model.modules()
        if isinstance(m, nn.modules.batchnorm._BatchNorm) and (m.training or not m.track_running_stats)
    ]


@contextmanager
def fixed_statistics(model: nn.Module, run: Callable[[], None]) -> Iterator[None]:
    """Inside, batch normalisation takes the statistics that the batch of `run()` has, whatever comes
    in; `run` is called once. What it changes in buffers, the caller puts back."""
    norms = [m for m in batch_norms(model) if m.running_mean is not None]
    if not norms:
        yield
        return
    kept = [(norm, norm.momentum, norm.__dict__.get("forward")) for norm in norms]
    try:
        for norm in norms:
            norm.momentum = 1.0
        run()
        for norm in norms:
            norm.forward = partial(_normalised, norm)
        yield
    finally:
        for norm, momentum, forward in kept:
            norm.momentum = momentum
            norm.__dict__.pop("forward", None)
            if forward is not None:
                norm.forward = forward


def _normalised(norm, x):
    return F.batch_norm(
        x, norm.running_mean, norm.running_var, norm.weight, norm.bias, False, 0.0, norm.eps
    )
