"""The losses of the random models of model_generator.py."""

from dataclasses import dataclass, field


@dataclass
class Loss:
    """Lines from `h`, the model's output, to a scalar, and the targets that they read."""

    lines: list[str]
    inputs: dict[str, str] = field(default_factory=dict)


def draw(draft) -> Loss:
    """Brings the model's output to (batch, features) where the loss wants that, and picks one."""
    rng = draft.rng
    if rng.random() < 0.12:
        return Loss([rng.choice(_OF_ANYTHING)])
    if draft.shape[0] == "B" and len(draft.shape) == 3 and rng.random() < 0.6:
        return _of_tokens(draft)
    if len(draft.shape) != 2 or draft.batch_at != 0:
        if draft.batch_at != 0:
            draft.emit(f"h = h.movedim({draft.batch_at}, 0)")
            draft.shape.insert(0, draft.shape.pop(draft.batch_at))
        if len(draft.shape) > 2:
            product = 1
            for size in draft.shape[1:]:
                product *= size
            draft.emit("h = h.flatten(1)")
            draft.shape = ["B", product]
    if len(draft.shape) == 1:
        draft.emit("h = h.unsqueeze(1)")
        draft.shape = ["B", 1]
    if rng.random() < 0.5:
        return _of_classes(draft)
    return _of_values(draft)


_OF_ANYTHING = (
    "return (h ** 2).mean()",
    "return (h ** 2).sum() / 10",
    "return h.abs().mean() + 0.01 * sum((p ** 2).sum() for p in model.parameters())",
    "return (h - 0.3).pow(2).flatten().mean()",
    "return torch.logsumexp(h.flatten(), 0)",
    "return F.mse_loss(h, torch.zeros_like(h))",
    "return F.smooth_l1_loss(h, torch.ones_like(h), reduction='sum') / h.numel()",
    "return h.norm() / 5",
    "return h.std() + h.mean()",
)


def _classes_layer(draft, classes: int) -> None:
    name = draft.name("out")
    draft.init.append(f"self.{name} = nn.Linear({draft.features}, {classes})")
    draft.emit(f"h = self.{name}(h)")
    draft.shape[-1] = classes


def _options(draft, classes: int, *, padded: bool) -> str:
    rng = draft.rng
    options = []
    if padded:
        options.append("ignore_index=1" if rng.random() < 0.5 else "ignore_index=-100")
    if rng.random() < 0.25:
        options.append("label_smoothing=0.1")
    if rng.random() < 0.25:
        draft.init.append(f"self.register_buffer('class_weight', torch.linspace(0.5, 1.5, {classes}))")
        options.append("weight=model.class_weight")
    if rng.random() < 0.25:
        options.append("reduction='sum'")
    return "".join(f", {option}" for option in options)


def _of_tokens(draft) -> Loss:
    rng, length, classes = draft.rng, draft.shape[1], 5
    _classes_layer(draft, classes)
    target = f"torch.randint(0, {classes}, (batch, {length}))"
    options = _options(draft, classes, padded=rng.random() < 0.6)
    if "-100" in options:
        target += f".masked_fill(torch.rand(batch, {length}) < 0.3, -100)"
    call = rng.choice(
        (
            "F.cross_entropy(h.flatten(0, 1), y.flatten()OPTIONS)",
            "F.cross_entropy(h.transpose(1, 2), yOPTIONS)",
            "F.cross_entropy(h.reshape(-1, 5), y.reshape(-1)OPTIONS)",
            "F.cross_entropy(h.permute(1, 0, 2).reshape(-1, 5), y.t().reshape(-1)OPTIONS)",
            "F.cross_entropy(h[:, :-1].flatten(0, 1), y[:, 1:].flatten()OPTIONS)",
        )
    )
    loss = call.replace("OPTIONS", options)
    if rng.random() < 0.2:
        return Loss(
            [
                "each = F.cross_entropy(h.flatten(0, 1), y.flatten(), reduction='none')",
                "counts = (y.flatten() > 1).to(each.dtype)",
                "return (each * counts).sum() / counts.sum().clamp(min=1)",
            ],
            {"y": target.partition(".masked_fill")[0]},
        )
    return Loss([f"return {loss}{' / 10' if 'sum' in loss else ''}"], {"y": target})


def _of_classes(draft) -> Loss:
    rng, classes = draft.rng, draft.rng.choice((3, 4, 6))
    _classes_layer(draft, classes)
    target = f"torch.randint(0, {classes}, (batch,))"
    form = rng.choice(("labels",) * 5 + ("nll", "soft", "margin", "contrast", "kl", "each", "hinge"))
    if form == "soft":
        target = f"torch.softmax(torch.randn(batch, {classes}), 1)"
        smoothing = rng.choice(("", ", label_smoothing=0.1"))
        return Loss([f"return F.cross_entropy(h, y{smoothing})"], {"y": target})
    if form == "margin":
        return Loss(["return F.multi_margin_loss(h, y)"], {"y": target})
    if form == "hinge":
        return Loss(
            ["right = h.gather(1, y[:, None])", "return (1 + h - right).clamp(min=0).mean()"],
            {"y": target},
        )
    if form == "contrast":
        return Loss(
            [
                "u = F.normalize(h, dim=1)",
                "return F.cross_entropy(u @ u.t() / 0.5, torch.arange(h.shape[0]))",
            ],
        )
    if form == "kl":
        target = f"torch.softmax(torch.randn(batch, {classes}), 1)"
        reduction = rng.choice(("batchmean", "sum", "mean"))
        return Loss(
            [f"return F.kl_div(F.log_softmax(h, 1), y, reduction={reduction!r})"], {"y": target}
        )
    if form == "each":
        return Loss(
            [
                "each = F.cross_entropy(h, y, reduction='none')",
                rng.choice(
                    (
                        "return (each * w).sum() / w.sum()",
                        "return (each * w).mean()",
                        "return each[torch.arange(each.shape[0])].mean()",
                        "return each.max() + each.mean()",
                        "return each.sum() / h.shape[0]",
                        "return torch.dot(each, w) / len(w)",
                    )
                ),
            ],
            {"y": target, "w": "torch.rand(batch) + 0.1"},
        )
    padded = rng.random() < 0.4
    options = _options(draft, classes, padded=padded)
    if "-100" in options:
        # The first is always kept: the mean of nothing is no number.
        target += ".masked_fill(torch.arange(batch) % 3 == 1, -100)"
    if form == "nll":
        options = options.replace(", label_smoothing=0.1", "")
        call = f"F.nll_loss(F.log_softmax(h, 1), y{options})"
    else:
        call = f"F.cross_entropy(h, y{options})"
    return Loss([f"return {call}{' / 10' if 'sum' in call else ''}"], {"y": target})


def _of_values(draft) -> Loss:
    rng, width = draft.rng, draft.features
    real, bits = f"torch.randn(batch, {width})", f"(torch.rand(batch, {width}) < 0.4).double()"
    signs = f"torch.where(torch.rand(batch, {width}) < 0.4, -1.0, 1.0)"
    mean = rng.choice(("", "", ", reduction='sum'"))
    form, target = rng.choice(
        (
            (f"F.mse_loss(h, y{mean})", real),
            (f"F.mse_loss(h, y{mean})", real),
            (f"F.l1_loss(h, y{mean})", real),
            (f"F.smooth_l1_loss(h, y{mean}, beta=0.5)", real),
            (f"F.huber_loss(h, y{mean}, delta=0.7)", real),
            (f"F.binary_cross_entropy_with_logits(h, y{mean})", bits),
            (f"F.binary_cross_entropy_with_logits(h, y, pos_weight=torch.full(({width},), 2.0))", bits),
            (f"F.binary_cross_entropy(torch.sigmoid(h), y{mean})", bits),
            (f"F.soft_margin_loss(h, y{mean})", signs),
            ("F.multilabel_soft_margin_loss(h, y)", bits),
            ("F.hinge_embedding_loss(h, y)", signs),
            ("F.poisson_nll_loss(h.clamp(max=2), y.abs())", real),
            ("F.gaussian_nll_loss(h, y, torch.full_like(h, 0.5))", real),
            ("F.cosine_embedding_loss(h, y, torch.ones(h.shape[0]))", real),
            ("F.margin_ranking_loss(h[:, 0], h[:, -1], y[:, 0].sign())", real),
            ("F.triplet_margin_loss(h, y, y.flip(1))", real),
            ("((h - y) ** 2).sum(1).sqrt().mean()", real),
            ("((h - y) ** 2).mean(0).sum()", real),
            ("(h - y).pow(2).sum() / h.shape[0]", real),
            ("(h - y).pow(2).mean(1).max()", real),
            ("torch.linalg.vector_norm(h - y) / h.shape[0]", real),
        )
    )
    divided = " / 10" if "'sum'" in form else ""
    penalty = " + 0.01 * sum(p.pow(2).sum() for p in model.parameters())"
    return Loss([f"return {form}{divided}{penalty if rng.random() < 0.1 else ''}"], {"y": target})
