"""The blocks that the random models of model_generator.py are chained from.

A block takes the value `h` on to another one, whose shape has the batch, once, at some place. What
is done along the batch is in batch_blocks.py.
"""

from batch_blocks import BATCH_BLOCKS

_ACTIVATIONS = (
    "relu", "gelu", "tanh", "sigmoid", "silu", "leaky_relu", "elu", "softplus", "hardswish",
    "hardsigmoid", "mish", "relu6", "selu", "celu", "hardtanh", "logsigmoid", "softsign",
    "tanhshrink", "softshrink", "hardshrink",
)  # fmt: skip


def start(draft) -> None:
    """What the model's first input is."""
    rng = draft.rng
    kind = rng.choice(("rows", "rows", "rows", "sequence", "sequence", "first", "1d", "2d", "words", "words"))
    width, length = rng.choice((3, 4, 5, 6)), rng.choice((2, 3, 4))
    if kind == "rows":
        draft.inputs["x"], draft.shape = f"torch.randn(batch, {width})", ["B", width]
    elif kind == "sequence":
        draft.inputs["x"] = f"torch.randn(batch, {length}, {width})"
        draft.shape = ["B", length, width]
    elif kind == "first":
        draft.inputs["x"] = f"torch.randn(3, batch, {width})"
        draft.shape = [3, "B", width]
    elif kind == "1d":
        draft.inputs["x"] = f"torch.randn(batch, {rng.choice((2, 3, 4))}, 6)"
        draft.shape = ["B", int(draft.inputs["x"].split(", ")[1]), 6]
    elif kind == "2d":
        channels = rng.choice((1, 2, 3))
        draft.inputs["x"], draft.shape = f"torch.randn(batch, {channels}, 4, 4)", ["B", channels, 4, 4]
    else:
        words = rng.choice((7, 30))
        draft.inputs["x"] = f"torch.randint(0, {words}, (batch, {length}))"
        options = rng.choice(("", "", ", padding_idx=2", ", scale_grad_by_freq=True"))
        layer = draft.module(f"nn.Embedding({words}, {rng.choice((4, 8))}{options})", "embed")
        width = int(draft.init[-1].split(", ")[1].rstrip(")"))
        draft.shape = ["B", length, width]
        draft.emit(f"h = {layer}(x)")
    if kind != "words":
        draft.emit("h = x")
    # So that there is something to train, and that gradients go through every block.
    if rng.random() < 0.6:
        name, width = draft.name("first"), rng.choice((3, 4, 6)) if kind != "2d" else 4
        draft.init.append(f"self.{name} = nn.Linear({draft.features}, {width})")
        draft.emit(f"h = self.{name}(h)")
        draft.shape[-1] = width
    else:
        draft.emit(f"h = h * {draft.parameter(f'torch.linspace(0.5, 1.5, {draft.features})')}")


def draw(draft, left_out: bool) -> str:
    """Adds the first of the blocks, in an order drawn by weight, that fits the shape; its name."""
    order = sorted(_BLOCKS, key=lambda block: draft.rng.random() ** (1 / block[1]), reverse=True)
    for block, _weight, fits in order:
        if fits(draft):
            if not left_out:
                block(draft)
            return block.__name__
    raise AssertionError(f"no block fits {draft.shape}")


# ---- layers on features ----


def linear(draft) -> None:
    width = draft.rng.choice((2, 3, 4, 6))
    bias = draft.rng.choice(("", "", ", bias=False"))
    layer = draft.module(f"nn.Linear({draft.features}, {width}{bias})", "linear")
    draft.emit(f"h = {layer}(h)")
    draft.shape[-1] = width


def activation(draft) -> None:
    name = draft.rng.choice((*_ACTIVATIONS, "prelu", "glu", "softmax", "log_softmax"))
    if name == "prelu":
        draft.emit(f"h = {draft.module('nn.PReLU()', 'prelu')}(h)")
    elif name == "glu":
        layer = draft.module(f"nn.Linear({draft.features}, {2 * draft.features})", "gate")
        draft.emit(f"h = F.glu({layer}(h), -1)")
    elif name in ("softmax", "log_softmax"):
        draft.emit(f"h = torch.{name}(h, -1)")
    else:
        where = draft.rng.choice(("h", "h", "h.clone()"))
        inplace = ", inplace=True" if where == "h.clone()" and name in ("relu", "elu", "silu") else ""
        draft.emit(f"h = F.{name}({where}{inplace})")


def feature_norm(draft) -> None:
    width, form = draft.features, draft.rng.randrange(6)
    if form < 3:
        made = (
            f"nn.LayerNorm({width})",
            f"nn.LayerNorm({width}, elementwise_affine=False)",
            f"nn.RMSNorm({width})",
        )[form]
        draft.emit(f"h = {draft.module(made, 'norm')}(h)")
        return
    draft.emit((
        "h = F.normalize(h, dim=-1)",
        "h = (h - h.mean(-1, keepdim=True)) / (h.var(-1, keepdim=True) + 0.1).sqrt()",
        "h = h / (1 + h.std(-1, keepdim=True))",
    )[form - 3])


def on_features(draft) -> None:
    """Pointwise arithmetic, and what runs along the last dimension."""
    width = draft.features
    half = (width + 1) // 2
    places = [draft.rng.randrange(width) for _ in range(3)]
    line, size = draft.rng.choice(
        (
            ("h = h.flip(-1)", width),
            ("h = h.roll(1, -1)", width),
            ("h = h.cumsum(-1)", width),
            ("h = h.sort(-1).values", width),
            ("h = h.sort(-1, descending=True)[0] + h.argsort(-1)", width),
            (f"h = h.topk({half}, -1).values", half),
            ("h = torch.cat([h, h.tanh()], -1)", 2 * width),
            (f"h = h[..., :{half}]", half),
            (f"h = h[..., {places}]", 3),
            (f"h = h.index_select(-1, torch.arange({half}))", half),
            ("h = F.pad(h, (1, 0))", width + 1),
            ("h = torch.where(h > 0.1, h, 0.5 * h - 0.2)", width),
            ("h = h.masked_fill(h > 1, 0.5)", width),
            ("h = h.clamp(-1, 1.5)", width),
            ("h = torch.maximum(h, -0.3 * h)", width),
            ("h = h * h.detach().sigmoid()", width),
            ("h = h.abs() + h.square() / 4", width),
            ("h = torch.lerp(h, h.flip(-1), 0.3)", width),
            ("h = h - h.logsumexp(-1, keepdim=True)", width),
            ("h = h * h.amax(-1, keepdim=True)", width),
            ("h = torch.addcmul(h, h, h, value=0.1)", width),
            ("h = h.cummax(-1).values", width),
            ("h = h.unfold(-1, 2, 1).mean(-1)", width - 1),
            ("h = (h.unsqueeze(-1) * h.unsqueeze(-2)).mean(-1)", width),
            ("h = torch.stack([h, -h], -1).flatten(-2)", 2 * width),
            ("h = torch.einsum('...i,...j->...j', h, h) / 5", width),
            ("h = h.repeat_interleave(2, -1)", 2 * width),
            (f"h = h + torch.linspace(-1, 1, {width})", width),
            (f"h = h * torch.arange({width}) / {width}", width),
            ("h = F.dropout(h, 0.5, training=False)", width),
        )
    )
    draft.emit(line)
    draft.shape[-1] = size


def residual(draft) -> None:
    width = draft.features
    layer = draft.module(f"nn.Linear({width}, {width})", "inner")
    draft.emit(
        draft.rng.choice(
            (
                f"h = h + torch.tanh({layer}(h))",
                f"h = h + {layer}(torch.relu({layer}(h)))",
                f"h = h * torch.sigmoid({layer}(h))",
                f"h = {layer}(h) + F.linear(h, {layer}.weight.t())",
            )
        )
    )


def constants(draft) -> None:
    """Buffers and parameters that a step reads."""
    width = draft.features
    form = draft.rng.randrange(6)
    if form == 0:
        draft.emit(f"h = h * {draft.buffer(f'torch.linspace(0.5, 1.5, {width})')}")
    elif form == 1:
        draft.emit(f"h = h * {draft.buffer(f'torch.linspace(0.5, 1.5, {width})', persistent=False)}")
    elif form == 2:
        draft.emit(f"h = h + {draft.parameter(f'torch.randn({width})')}")
    elif form == 3:
        draft.emit(f"h = h * {draft.parameter('torch.tensor(0.7)')}")
    elif form == 4:
        draft.emit(f"h = torch.addmm(h, h, {draft.parameter(f'torch.randn({width}, {width})')})"
                   if draft.shape == ["B", width] else
                   f"h = h @ {draft.parameter(f'torch.randn({width}, {width})')}")  # fmt: skip
    else:
        name = draft.name("plain")
        draft.init.append(f"self.{name} = torch.linspace(-1, 1, {width})")
        draft.emit(f"h = h - self.{name}")


def written_buffers(draft) -> None:
    """Buffers that a step changes: counters, means, and some that it never reads."""
    form = draft.rng.randrange(8)
    if form == 0:
        counter = draft.buffer("torch.tensor(0)")
        draft.emit(f"{counter} += 1", f"h = h * (1 + 1 / (1 + {counter}))")
    elif form == 1:
        counter = draft.buffer("torch.tensor(0)")
        draft.emit(f"{counter} += 1")
    elif form == 2:
        mean = draft.buffer("torch.zeros(())")
        draft.emit(f"{mean} = 0.9 * {mean} + 0.1 * h.detach().mean()")
    elif form == 3:
        mean = draft.buffer("torch.zeros(())")
        draft.emit(f"{mean}.mul_(0.9).add_(0.1 * h.detach().mean())", f"h = h - {mean}")
    elif form == 4:
        mean = draft.buffer("torch.zeros(())")
        draft.emit(f"h = h - {mean}", f"{mean} = 0.9 * {mean} + 0.1 * h.detach().pow(2).mean()")
    elif form == 5:
        last = draft.buffer("torch.zeros(2)")
        draft.emit(f"{last}[0] = h.detach().amax()", f"{last}[1] += h.detach().sum()")
    elif form == 6:
        last = draft.buffer("torch.zeros(3)", persistent=False)
        draft.emit(f"{last}.copy_(torch.stack([h.detach().min(), h.detach().max(), h.detach().mean()]))")
    else:
        last = draft.buffer("torch.ones(())")
        draft.emit(f"with torch.no_grad(): {last}.fill_(0.5).add_({last})")


# ---- layers on channels and sequences ----


def batch_norm(draft) -> None:
    channels, dims = draft.shape[1], len(draft.shape)
    options = draft.rng.choice(("", "", ", affine=False", ", momentum=None", ", track_running_stats=False"))
    layer = draft.module(f"nn.BatchNorm{max(dims - 2, 1)}d({channels}{options})", "norm", modal=True)
    draft.config["batch_norm"] = "exact"
    draft.emit(f"h = {layer}(h)")


def group_norm(draft) -> None:
    channels = draft.shape[1]
    groups = draft.rng.choice([n for n in (1, 2, 3) if channels % n == 0])
    made = f"nn.GroupNorm({groups}, {channels})"
    if draft.rng.random() < 0.3:
        made = f"nn.InstanceNorm{len(draft.shape) - 2}d({channels}, affine=True)"
    draft.emit(f"h = {draft.module(made, 'norm')}(h)")


def convolution(draft) -> None:
    rng = draft.rng
    channels, dims, size = draft.shape[1], len(draft.shape) - 2, draft.shape[2]
    out = rng.choice((2, 3, 4))
    kernel = rng.choice((1, 2, 3))
    stride = rng.choice((1, 1, 2))
    groups = channels if rng.random() < 0.2 else 1
    out = out if groups == 1 else channels
    if rng.random() < 0.2:
        made = f"nn.ConvTranspose{dims}d({channels}, {out}, {kernel}, stride={stride}, groups={groups})"
        size = (size - 1) * stride + kernel
    else:
        mode = rng.choice(("", "", ", padding_mode='circular'", ", padding_mode='reflect'"))
        padding = 1 if kernel == 3 else 0
        made = f"nn.Conv{dims}d({channels}, {out}, {kernel}, stride={stride}, padding={padding}, groups={groups}{mode})"
        size = (size + 2 * padding - kernel) // stride + 1
    draft.emit(f"h = {draft.module(made, 'conv')}(h)")
    draft.shape[1:] = [out] + [size] * dims


def pool(draft) -> None:
    dims, size = len(draft.shape) - 2, draft.shape[2]
    form = draft.rng.randrange(5)
    if form == 4:
        draft.emit(f"h = F.interpolate(h, scale_factor=2, mode='{'linear' if dims == 1 else 'bilinear'}')")
        size *= 2
    elif form == 3:
        draft.emit(f"h = F.adaptive_avg_pool{dims}d(h, 2)")
        size = 2
    else:
        call = ("max_pool", "avg_pool", "lp_pool")[form]
        value = "h + 3, 2" if form == 2 else "h"
        draft.emit(f"h = F.{call}{dims}d({value}, 2)")
        size //= 2
    draft.shape[2:] = [size] * dims


def channel_means(draft) -> None:
    draft.emit(f"h = h.mean({list(range(2, len(draft.shape)))})" if len(draft.shape) == 4
               else draft.rng.choice(("h = h.mean(1)", "h = h.amax(1)", "h = h.sum(1) / 3", "h = h[:, 0]", "h = h[:, -1]")))  # fmt: skip
    draft.shape = draft.shape[:2] if len(draft.shape) == 4 else ["B", draft.shape[2]]


def attention(draft) -> None:
    rng, width = draft.rng, draft.features
    first = draft.batch_at == 0
    form = rng.randrange(4)
    if form == 0:
        layer = draft.module(f"nn.MultiheadAttention({width}, 1, batch_first={first})", "attention")
        draft.emit(f"h = {layer}(h, h, h, need_weights=False)[0]")
    elif form == 1:
        layer = draft.module(f"nn.Linear({width}, {3 * width})", "qkv")
        where = "" if first else ".transpose(0, 1)"
        draft.emit(
            f"q, k, v = {layer}(h{where}).chunk(3, -1)",
            f"h = F.scaled_dot_product_attention(q, k, v, is_causal={rng.random() < 0.5}){where}",
        )
    elif form == 2:
        layer = draft.module(
            f"nn.TransformerEncoderLayer({width}, 1, 6, 0.0, batch_first={first}, norm_first=True)",
            "encoder",
        )
        draft.emit(f"h = {layer}(h)")
    elif first:
        draft.emit(
            f"allowed = torch.ones({draft.shape[1]}, {draft.shape[1]}).tril()",
            "scores = (h @ h.transpose(1, 2)).masked_fill(allowed == 0, float('-inf'))",
            "h = torch.softmax(scores, -1) @ h",
        )
    else:
        draft.emit("h = torch.einsum('tbf,sbf->tbf', torch.softmax(h, 0), h)")


def recurrent(draft) -> None:
    rng = draft.rng
    kind, size = rng.choice(("LSTM", "GRU", "RNN")), rng.choice((2, 3))
    both = rng.random() < 0.2
    options = f", batch_first={draft.batch_at == 0}" + (", bidirectional=True" if both else "")
    layer = draft.module(f"nn.{kind}({draft.features}, {size}{options})", "recurrent")
    draft.emit(f"h = {layer}(h)[0]")
    draft.shape[-1] = size * (1 + both)


def cell(draft) -> None:
    kind = draft.rng.choice(("LSTMCell", "GRUCell", "RNNCell"))
    layer = draft.module(f"nn.{kind}({draft.features}, 3)", "cell")
    zeros = draft.rng.choice(("torch.zeros(B, 3)", "h.new_zeros(h.shape[0], 3)"))
    if kind == "LSTMCell":
        draft.emit(f"h, c = {layer}(h, ({zeros}, {zeros}))", f"h, c = {layer}(F.pad(h, (0, {draft.features}))[:, :{draft.features}], (h, c))")  # fmt: skip
    else:
        draft.emit(f"h = {layer}(h, {zeros})")
    draft.shape[-1] = 3


def words(draft) -> None:
    """An embedding of words of the data, tied to nothing or to what reads it again."""
    rng = draft.rng
    count, length = rng.choice((5, 30)), rng.choice((1, 3))
    given = draft.input("k", f"torch.randint(0, {count}, (batch, {length}))")
    width = draft.features
    form = rng.randrange(5)
    if form == 0:
        layer = draft.module(f"nn.EmbeddingBag({count}, {width}, mode={rng.choice(('sum', 'mean'))!r})", "bag")
        draft.emit(f"h = h + {layer}({given})")
        return
    layer = draft.module(f"nn.Embedding({count}, {width})", "embed")
    if form == 1:
        draft.emit(f"h = (h + {layer}({given}).mean(1)) @ {layer}.weight.t()")
        draft.shape[-1] = count
    elif form == 2:
        draft.emit(f"h = h * {layer}.weight[{given}].sum(1)")
    elif form == 3:
        draft.emit(f"h = h + F.one_hot({given}[:, 0], {count}).to(h.dtype) @ {layer}.weight")
    else:
        draft.emit(f"h = torch.cat([h, {layer}({given}).flatten(1)], 1)")
        draft.shape[-1] = width * (1 + length)


# ---- shapes ----


def to_channels(draft) -> None:
    """From rows to channels, by reshapes that keep the batch where it is."""
    channels, length = draft.rng.choice(((2, 4), (3, 5), (4, 3)))
    layer = draft.module(f"nn.Linear({draft.features}, {channels * length})", "linear")
    form = draft.rng.choice((
        f"{layer}(h).view(B, {channels}, {length})",
        f"{layer}(h).reshape(-1, {channels}, {length})",
        f"{layer}(h).unflatten(1, ({channels}, {length}))",
        f"{layer}(h).reshape(h.size(0), {length}, {channels}).transpose(1, 2)",
    ))  # fmt: skip
    draft.emit(f"h = {form}")
    draft.shape = ["B", channels, length]


def flatten(draft) -> None:
    draft.emit(draft.rng.choice(("h = h.flatten(1)", "h = h.reshape(B, -1)", "h = h.view(len(x), -1)"))
               if draft.shape[0] == "B" and draft.inputs["x"].startswith(("torch.randn(batch", "torch.randint"))
               else f"h = h.movedim({draft.batch_at}, 0).flatten(1)")  # fmt: skip
    product = 1
    for size in draft.shape:
        product *= 1 if size == "B" else size
    draft.shape = ["B", product]


def move_batch(draft) -> None:
    last = len(draft.shape) - 1
    one = draft.batch_at
    other = draft.rng.choice([at for at in range(last + 1) if at != one])
    draft.emit(f"h = h.transpose({one}, {other}){draft.rng.choice(('', '', '.contiguous()'))}")
    draft.shape[one], draft.shape[other] = draft.shape[other], draft.shape[one]


def merged_rows(draft) -> None:
    """Rows of several samples as one dimension, and back."""
    width = draft.features
    layer = draft.module(f"nn.Linear({width}, {width})", "rows")
    a, b = draft.shape[:2]
    flat = draft.rng.choice(("h.flatten(0, 1)", f"h.reshape(-1, {width})", f"h.reshape(B * {a if b == 'B' else b}, {width})"))
    draft.emit(f"h = {layer}({flat}).view({a}, {b}, {width})")


def _sequences(draft) -> bool:
    return len(draft.shape) == 3 and draft.batch_at < 2


def _channels(draft) -> bool:
    return len(draft.shape) in (3, 4) and draft.batch_at == 0 and draft.shape[2] >= 3


def _has_features(draft) -> bool:
    return draft.features >= 2


def _rows(draft) -> bool:
    return len(draft.shape) == 2 and draft.batch_at == 0 and draft.features >= 1


_BLOCKS = [
    (linear, 4, lambda d: d.features >= 1),
    (activation, 4, _has_features),
    (feature_norm, 2, _has_features),
    (on_features, 4, _has_features),
    (residual, 2, lambda d: d.features >= 1),
    (constants, 2, lambda d: d.features >= 1),
    (written_buffers, 1.5, lambda d: True),
    (batch_norm, 2, lambda d: d.batch_at == 0 and len(d.shape) in (2, 3, 4)),
    (group_norm, 1, lambda d: len(d.shape) in (3, 4) and d.batch_at == 0 and d.shape[2] >= 2),
    (convolution, 3, _channels),
    (pool, 1.5, _channels),
    (channel_means, 1.5, lambda d: len(d.shape) in (3, 4) and d.batch_at == 0),
    (attention, 1.5, lambda d: _sequences(d) and _has_features(d)),
    (recurrent, 1, _sequences),
    (cell, 0.5, _rows),
    (words, 2, _rows),
    (to_channels, 2, _rows),
    (flatten, 1.5, lambda d: len(d.shape) > 2),
    (move_batch, 1.5, lambda d: len(d.shape) >= 2),
    (merged_rows, 1.5, _sequences),
    *BATCH_BLOCKS,
]
