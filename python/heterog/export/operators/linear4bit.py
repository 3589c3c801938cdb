"""Linear layers whose frozen weight has 4 bits a number (QLoRA), as one operator forward and one backward.

    with_4bit_base(model)       frozen linear layers of a model become such, in place
    Linear4bit                  one of them

The operators are the project's own: PyTorch has none for such a weight that trains on every kind of device.
src/runtime/kernels/own_operators.cc tells a process without Python of the same.
"""

import torch
from torch import nn

from heterog.base.errors import InputError

BLOCK = 64  # numbers that share a scale, as in bitsandbytes
# NF4, the quantiles of a normal distribution (Dettmers et al. 2023, appendix E), as bitsandbytes has them.
NORMAL_FLOAT = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
_SCHEMA = "(Tensor x, Tensor packed, Tensor scales, int features) -> Tensor"


def pack(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A weight [out, in] as bytes, two numbers each, the first in the high half; and the scales in float32,
    the largest magnitude of each block."""
    flat = weight.detach().reshape(-1).float()
    count = flat.numel()
    flat = nn.functional.pad(flat, (0, -count % BLOCK)).view(-1, BLOCK)
    scales = flat.abs().amax(1)
    table = torch.tensor(NORMAL_FLOAT, device=weight.device)
    middles = (table[1:] + table[:-1]) / 2
    places = torch.bucketize(flat / scales.clamp_min(1e-30)[:, None], middles).to(torch.uint8).reshape(-1)
    places = places[: count + count % 2].view(-1, 2)
    return places[:, 0] << 4 | places[:, 1], scales


def unpack(packed: torch.Tensor, scales: torch.Tensor, rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """The weight [rows, columns]."""
    wide = torch.promote_types(scales.dtype, dtype)
    table = torch.tensor(NORMAL_FLOAT, dtype=torch.float64, device=packed.device).to(wide)
    places = torch.stack([packed >> 4, packed & 15], 1).reshape(-1)[: rows * columns]
    factors = scales.to(wide).repeat_interleave(BLOCK)[: rows * columns]
    return (table[places.long()] * factors).to(dtype).view(rows, columns)


def _forward(x, packed, scales, features):
    return x @ unpack(packed, scales, features, x.size(-1), x.dtype).t()


def _backward(x, packed, scales, features):
    return x @ unpack(packed, scales, x.size(-1), features, x.dtype)


def _sizes_alone(x, packed, scales, features):
    return x.new_empty([*x.shape[:-1], features])


def _know() -> torch.library.Library | None:
    """Tells PyTorch of the operators, unless the library has done so in this process."""
    if hasattr(torch.ops.heterog, "linear4bit"):
        return None
    library = torch.library.Library("heterog", "FRAGMENT")
    for name, kernel in (("linear4bit", _forward), ("linear4bit_backward", _backward)):
        library.define(name + _SCHEMA)
        library.impl(name, kernel, "CompositeExplicitAutograd")
        library.impl(name, _sizes_alone, "Meta")
    return library


_LIBRARY = _know()


class _Product(torch.autograd.Function):
    """The weight is frozen: the gradient is that of x alone, for which the weight is unpacked anew."""

    @staticmethod
    def forward(ctx, x, packed, scales, features):
        ctx.save_for_backward(packed, scales)
        ctx.width = x.size(-1)
        return torch.ops.heterog.linear4bit(x, packed, scales, features)

    @staticmethod
    def backward(ctx, gradient):
        packed, scales = ctx.saved_tensors
        return torch.ops.heterog.linear4bit_backward(gradient, packed, scales, ctx.width), None, None, None


class Linear4bit(nn.Module):
    """A linear layer over a frozen weight in NF4: half a byte a number, and 4 bytes for each 64 of them."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None):
        """`weight` [out, in], of which the packed form is kept; on the device meta it has no values."""
        super().__init__()
        self.out_features, self.in_features = weight.shape
        if weight.is_meta:
            count = weight.numel()
            packed = torch.empty((count + 1) // 2, dtype=torch.uint8, device="meta")
            scales = torch.empty((count + BLOCK - 1) // BLOCK, device="meta")
        else:
            packed, scales = pack(weight)
        self.register_buffer("packed", packed)
        self.register_buffer("scales", scales)
        self.bias = bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [..., in]."""
        y = _Product.apply(x, self.packed, self.scales, self.out_features)
        return y if self.bias is None else y + self.bias

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"


def with_4bit_base(model: nn.Module, skip: tuple[str, ...] = ("lm_head",)) -> nn.Module:
    """`model`, whose frozen linear layers have become Linear4bit in place: what QLoRA trains over.

    A layer is frozen if its weight wants no gradient. Layers whose last name stands in `skip` stay as they are,
    as bitsandbytes leaves them. Layers of bitsandbytes (Linear4bit) are taken by their sizes, and their values
    are not: of them a step can be planned, not checked beside PyTorch.
    """
    found = 0
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if name in skip or isinstance(layer, Linear4bit):
                continue
            if type(layer) is nn.Linear and not layer.weight.requires_grad:
                weight = layer.weight
            elif type(layer).__name__ == "Linear4bit" and type(layer).__module__.startswith("bitsandbytes."):
                weight = torch.empty(layer.out_features, layer.in_features, device="meta")
            else:
                continue
            setattr(parent, name, Linear4bit(weight, layer.bias))
            found += 1
    if not found:
        raise InputError(
            "with_4bit_base: the model has no frozen linear layer; call requires_grad_(False) on its base before"
        )
    return model
