"""Blocks of random models that do something along the batch: row numbers, windows, sums over it."""

_WINDOWS = (
    "h = torch.cat([h[1:], h[:1]])",
    "h = torch.cat([h[-1:], h[:-1]])",
    "h = h - torch.cat([h[:1], h[:-1]])",
    "h = h + h[0]",
    "h = h + h[B - 1]",
    "h = h * h[-1:].tanh()",
    "h = h[:B]",
    "h = h[0:]",
    "h = h.narrow(0, 0, B)",
    "h = torch.cat([h, h.flip(0)])[:B]",
    "h = torch.cat([h, 2 * h])[B:]",
    "h = torch.cat([h[:B - 2], h[B - 2:] * 2])",
    "h = torch.stack([h, -h], 1).flatten(0, 1)[:B]",
    "h = torch.stack([h, 0.5 * h]).mean(0)",
    "h = h.repeat(2, *[1] * (h.dim() - 1)).view(2, *h.shape).mean(0)",
    "h = h.repeat(2, *[1] * (h.dim() - 1)).view(B, 2, *h.shape[1:]).mean(1)",
    "h = h.repeat_interleave(2, 0).view(B, 2, *h.shape[1:]).sum(1)",
    "h = torch.cat([h, h]).chunk(2)[1]",
    "h = torch.cat([p * 2 for p in h.split([B - 1, 1])])",
    "h = h.expand(2, *h.shape).sum(0)",
    "h = h.unsqueeze(0).transpose(0, 1).squeeze(1)",
    "h = h.roll(1, 0)",
    "h = h.roll(-2, 0)",
    "h = h.roll(B, 0)",
    "h = h.roll(B - 1, 0)",
    "h = h.flip(0)",
    "h = h.flatten().view(h.shape).clone()",
    "h = torch.cat([h.flatten(), h.flatten()])[: h.numel()].view(h.shape)",
)

_INDICES = (
    "torch.arange(B)",
    "torch.arange(h.shape[0])",
    "torch.arange(0, B, 1)",
    "torch.arange(B - 1, -1, -1)",
    "(torch.arange(B) + 1) % B",
    "(torch.arange(B) + B - 1) % B",
    "B - 1 - torch.arange(B)",
    "torch.arange(B) // 2",
    "torch.arange(B) % 3",
    "torch.arange(B).flip(0)",
    "torch.arange(B).roll(1)",
    "torch.zeros(B, dtype=torch.long)",
    "torch.full((B,), B - 1)",
    "torch.arange(2 * B)[:B] * 1",
    "torch.arange(B) * 0 + 2",
    "torch.cat([torch.arange(1, B), torch.arange(1)])",
    "torch.arange(1, B + 1) - 1",
    "torch.arange(1, B + 1) % B",
    "(torch.arange(B) * 2) % B",
    "torch.arange(B).clamp(max=B - 2)",
    "torch.ones(B, dtype=torch.long).cumsum(0) - 1",
    "torch.minimum(torch.arange(B), torch.tensor(2))",
)

_WEIGHTS = (
    "torch.arange(B) / B",
    "1.0 / (1 + torch.arange(B))",
    "torch.linspace(0, 1, B)",
    "(torch.arange(B) % 2).to(h.dtype)",
    "(torch.arange(B) < 3).to(h.dtype)",
    "(torch.arange(B) >= B - 2).to(h.dtype)",
    "torch.arange(B, 0, -1) / 8",
    "torch.arange(B, 2 * B) / B",
    "torch.ones(B).cumsum(0) / B",
    "torch.ones(B)",
    "torch.full((B,), 1 / B)",
    "h.new_ones(B) * B / 8",
    "torch.eye(B)[0]",
    "torch.eye(B).sum(0)",
    "torch.tril(torch.ones(B, B)).sum(1) / B",
    "torch.zeros(B).index_fill(0, torch.tensor([1]), 2.0)",
    "F.pad(torch.ones(B - 1), (1, 0))",
    "F.one_hot(torch.arange(B) % 3, 3).sum(1).to(h.dtype)",
    "torch.cat([torch.zeros(1), torch.ones(B - 1)])",
)

_STATISTICS = (
    "h = h - h.mean(0)",
    "h = h - h.mean(0, keepdim=True)",
    "h = h - h.sum(0) / B",
    "h = h - h.sum(0) / h.shape[0]",
    "h = h / (1 + h.std(0))",
    "h = h / (1 + h.var(0, unbiased=False))",
    "h = (h - h.mean(0)) / (h.var(0) + 0.1).sqrt()",
    "h = h - h.amax(0)",
    "h = h - h.max(0, keepdim=True).values",
    "h = torch.softmax(h, 0)",
    "h = h - torch.logsumexp(h, 0)",
    "h = h.cumsum(0) / B",
    "h = h / (1 + h.norm(dim=0))",
    "h = h / (1 + h.norm())",
    "h = F.normalize(h, dim=0)",
    "h = h.sort(0).values",
    "h = h + h.median(0).values",
    "h = h + h.topk(2, 0).values.sum(0)",
    "h = h.cummax(0).values",
    "h = h + h.mean()",
    "h = h * (h.detach().abs().max() + 1).reciprocal()",
    "h = h + h.min(0).indices / 10",
    "h = h + h.argmax(0) / 10",
    "h = h + (h > 0).sum(0) / B",
    "h = h * (h > 0).to(h.dtype).mean()",
    "h = h / (1 + h.abs().prod(0))",
    "h = h.argsort(0).argsort(0) / B + h",
    "h = h + (h[0] > 0).any().to(h.dtype)",
    "h = h + h.count_nonzero() / 100",
)

_ROWS = (
    "h = h @ h.t() @ h / B",
    "h = torch.softmax(h @ h.t(), -1) @ h",
    "h = torch.softmax(h @ h.t(), 0) @ h",
    "h = torch.tril(h @ h.t()) @ h / B",
    "h = torch.eye(B) @ h",
    "h = torch.ones(B, B) @ h / B",
    "h = torch.tril(torch.ones(B, B)) @ h / B",
    "h = torch.cdist(h, h + 1).mean(1, keepdim=True) + h",
    "h = (h.unsqueeze(0) - h.unsqueeze(1)).pow(2).mean(1)",
    "h = (h.unsqueeze(0) * h.unsqueeze(1)).sum(0) / B",
    "h = (h @ h.t()).diagonal()[:, None] * 0.1 + h",
    "h = torch.diag_embed(h).sum(-1)",
    "h = (h @ h.t()).fill_diagonal_(0.0) @ h / B",
    "h = (h @ h.t()).masked_fill(torch.eye(B, dtype=torch.bool), -1.0).softmax(1) @ h",
    "h = F.scaled_dot_product_attention(h[None], h[None], h[None])[0]",
    "h = F.conv1d(h.t()[None], torch.ones(h.shape[1], 1, 3) / 3, padding=1, groups=h.shape[1])[0].t()",
    "h = h.t().reshape(h.shape)",
    "h = h.reshape(h.shape[1], B).t()",
    "h = h.t().contiguous().view(-1).view(h.shape[1], B).t()",
    "h = F.pad(h, (0, 0, 1, 0))[:B]",
    "h = F.pad(h, (0, 0, 0, 1))[1:]",
    "h = torch.tril(h, B - 6)",
    "h = h.triu()",
    "h = torch.outer(h[:, 0], h[0])  + h",
    "h = h.var(0).mean() + h",
    "h = torch.einsum('bi,ci->bc', h, h) @ h / B",
    "h = torch.mm(h, h.t().mm(h)) / B",
    "h = torch.linalg.vector_norm(h, dim=1, keepdim=True) + h",
    "h = h.unfold(0, 2, 1).mean(-1); h = torch.cat([h, h[:1]])",
)

_GATHERS = (
    "h = h.gather(0, {rows}[:, None].expand(-1, h.shape[1]))",
    "h = h + h.gather(0, torch.zeros(2, h.shape[1], dtype=torch.long)).sum(0)",
    "h = h + h.gather(0, {rows}[:3, None].expand(-1, h.shape[1])).sum(0)",
    "h = h + h.gather(1, {columns}[:, None])",
    "h = h + h.gather(1, {columns}[:3, None]).sum()",
    "h = h + h.take_along_dim({columns}[:, None], 1)",
    "h = h + h[torch.arange(B), {columns}][:, None]",
    "h = h + h[{rows}, {columns}][:, None]",
    "h = h.index_select(0, {rows})",
    "h = h[{rows}]",
    "h = torch.zeros_like(h).index_add(0, {rows}, h)",
    "h = h.index_add(0, {rows}, 0.5 * h)",
    "h = torch.zeros(3, h.shape[1]).index_add(0, {columns} % 3, h)[{columns} % 3]",
    "h = h.scatter(1, {columns}[:, None], 0.5)",
    "h = h.scatter_add(0, {rows}[:, None].expand(-1, h.shape[1]), h)",
    "h = h.scatter_add(0, {rows}[:2, None].expand(-1, h.shape[1]), h[:2])",
    "h = h.scatter(0, torch.zeros(1, h.shape[1], dtype=torch.long), 0.25)",
    "h = h.index_copy(0, torch.arange(B), h * 2)",
    "h = h.index_fill(0, torch.arange(2), 0.5)",
    "h = h.index_put(({rows},), h, accumulate=True)",
    "h = h.masked_fill(({columns} == 1)[:, None], 0.1)",
    "h = torch.where(({rows} > 2)[:, None], h, 0.5 * h)",
    "h = h[h[:, 0].argsort()]",
    "h = h[{rows}.argsort()]",
    "h = h + {rows}[:, None] / B",
    "h = h + F.one_hot({columns}, h.shape[1]).to(h.dtype)",
    "h = h * F.one_hot({rows}, B).to(h.dtype).sum(0)[:, None]",
    "h = F.one_hot({rows}, B).to(h.dtype) @ h",
    "h = h + torch.bincount({columns}, minlength=h.shape[1]) / B",
    "h = h + h[{rows}[0]]",
)

_TABLES = (
    "h = h + {table}[torch.arange(B)]",
    "h = h + {table}[:B]",
    "h = h + {table}[B - 1]",
    "h = h + {table}[B:B + 3].sum(0)",
    "h = h + {table}[torch.arange(B, B + 4)].mean(0)",
    "h = h + {table}.roll(B, 0)[0]",
    "h = h + {table}.roll(B, 0)[:B]",
    "h = h + {table}.narrow(0, B, 2).sum(0)",
    "h = h + {table}.select(0, B + 1)",
    "h = h + F.embedding(torch.arange(B), {table})",
    "h = h + F.embedding(torch.arange(B, B + 4), {table}).mean(0)",
    "h = h + {table}[{k}]",
    "h = h + {table}[{k} % 3]",
    "h = h + {table}[B - 1 - torch.arange(B)]",
    "h = h + {table}.index_select(0, torch.arange(B - 2, B)).sum(0)",
    "h = h + {table}[1:B + 1]",
    "h = h + {table}[-B:]",
    "h = h + {table}.tril(B - 6).mean(0)",
    "h = h + torch.cat([{table}, h])[:B]",
    "h = h + torch.cat([{table}, h])[20:]",
    "h = h + {table}.cumsum(0)[B]",
    "h = h + {table}[:B].mean(0)",
    "h = h * {table}[::2][:B].tanh()",
    "h = h + {table}[0].expand(B, -1)",
    "h = h + {table}[0].repeat(B, 1)",
    "h = h + torch.zeros(B, h.shape[1]).index_add(0, torch.arange(B), {table}[:B])",
    "h = h @ ({table}.t() @ {table}) / 20 + B / 10",
)

_SCALARS = (
    "h = h / B",
    "h = h * (B / 8)",
    "h = h / (B + 1)",
    "h = h + 1 / B",
    "h = h * (2 * B + 1) / 20",
    "h = h / len(h)",
    "h = h.sub(1.0 / h.shape[0])",
    "h = torch.add(h, h, alpha=1 / B)",
    "h = h + torch.full_like(h, B / 16)",
    "h = h.clamp(max=B / 4)",
    "h = h ** 2 / h.numel()",
)

_BRANCHES = (
    "h = h * 2 if B % 2 else h",
    "h = h * 2 if B >= 6 else h",
    "h = h * min(B, 3)",
    "h = h * max(B, 12) / 12",
    "h = h * (B // 2)",
    "h = h + h[:min(B, 3)].sum(0)",
    "h = h * B ** 0.5",
    "h = h * (2 if B == 8 else 1)",
)


def windows(draft) -> None:
    draft.emit(draft.rng.choice(_WINDOWS))


def indices(draft) -> None:
    index = draft.rng.choice(_INDICES)
    form = draft.rng.choice(("h[{}]", "h[{}]", "h.index_select(0, {})", "h + h[{}].sum(0)"))
    draft.emit(f"h = {form.format(index)}")


def weights(draft) -> None:
    weight = draft.rng.choice(_WEIGHTS)
    more = "".join([", None"] * (len(draft.shape) - 1))
    draft.emit(f"h = h * ({weight})[:{more}]")


def statistics(draft) -> None:
    draft.emit(draft.rng.choice(_STATISTICS))


def rows(draft) -> None:
    draft.emit(draft.rng.choice(_ROWS))


def gathers(draft) -> None:
    line = draft.rng.choice(_GATHERS)
    names = {}
    if "{columns}" in line:
        names["columns"] = draft.input("c", f"torch.randint(0, {draft.features}, (batch,))")
    if "{rows}" in line:
        made = draft.rng.choice(("torch.randperm(batch)", "torch.randint(0, batch, (batch,))"))
        names["rows"] = draft.input("r", made)
    draft.emit(line.format(**names))


def tables(draft) -> None:
    line = draft.rng.choice(_TABLES)
    kind = draft.parameter if draft.rng.random() < 0.7 else draft.buffer
    names = {"table": kind(f"torch.randn(40, {draft.features})")}
    if "{k}" in line:
        names["k"] = draft.input("w", "torch.randint(0, 40, (batch,))")
    draft.emit(line.format(**names))


def scalars(draft) -> None:
    draft.emit(draft.rng.choice(_SCALARS))


def branches(draft) -> None:
    draft.emit(draft.rng.choice(_BRANCHES))


def specials(draft) -> None:
    """What is to be done right or refused: hooks, norms kept by the forward pass, sparse gradients."""
    width, form = draft.features, draft.rng.randrange(5)
    if form < 2:
        option = ("max_norm=0.8", "sparse=True")[form]
        layer = draft.module(f"nn.Embedding(12, {width}, {option})", "embed")
        draft.emit(f"h = h + {layer}({draft.input('e', 'torch.randint(0, 12, (batch,))')})")
    elif form == 2:
        layer = draft.module(f"nn.Linear({width}, {width})", "hooked")
        draft.setup.append(f"model.{layer.removeprefix('self.')}.weight.register_hook(lambda g: 2 * g)")
        draft.setup.append(f"model.{layer.removeprefix('self.')}.requires_grad_(True)")
        draft.emit(f"h = {layer}(h)")
    else:
        wrap = ("nn.utils.parametrizations.spectral_norm", "nn.utils.parametrizations.weight_norm")[form - 3]
        layer = draft.module(f"{wrap}(nn.Linear({width}, {width}))", "wrapped")
        draft.emit(f"h = {layer}(h)")


def random_operators(draft) -> None:
    draft.emit(
        draft.rng.choice(
            ("h = F.rrelu(h, training=True)", "h = F.gumbel_softmax(h, dim=-1)", "h = h + 0.1 * torch.randn_like(h)")
        )
    )


def _first(draft) -> bool:
    return draft.batch_at == 0


def _rows(draft) -> bool:
    return len(draft.shape) == 2 and draft.batch_at == 0 and draft.features >= 2


BATCH_BLOCKS = [
    (windows, 1, _first),
    (indices, 1, _first),
    (weights, 1, _first),
    (statistics, 1, _first),
    (rows, 1, _rows),
    (gathers, 1.5, _rows),
    (tables, 1.5, _rows),
    (scalars, 0.6, lambda draft: True),
    (branches, 0.15, _first),
    (specials, 0.25, _rows),
    (random_operators, 0.04, _rows),
]
