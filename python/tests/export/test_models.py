"""Exported steps of many kinds of model equal eager PyTorch at a batch size never traced."""

import re

import pytest
import torch
from support import BATCH, Case, compare, export, operators
from torch import nn
from torch.nn import functional as F

import heterog

DOUBLE = {"double": True}


def case(model, make_inputs, loss_fn, **options) -> Case:
    return Case(model, make_inputs, loss_fn, options=DOUBLE | options)


def images(batch):
    return torch.randn(batch, 3, 8, 8), torch.randint(0, 5, (batch,))


def tokens(batch, length=6, words=11):
    return torch.randint(0, words, (batch, length)), torch.randint(0, words, (batch, length))


def classify(model, x, y):
    return F.cross_entropy(model(x), y)


def classify_words(model, x, y):
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


def mlp():
    return nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.LayerNorm(5), nn.Linear(5, 4))


def test_mlp():
    compare(
        case(
            mlp,
            lambda batch: (torch.randn(batch, 6), torch.randn(batch, 4)),
            lambda model, x, y: F.mse_loss(model(x), y),
        )
    )


def test_mlp_in_single_precision():
    compare(
        Case(
            mlp,
            lambda batch: (torch.randn(batch, 6), torch.randn(batch, 4)),
            lambda model, x, y: F.mse_loss(model(x), y),
        ),
        tolerance=1e-6,
    )


def test_convolutions_with_batch_norm_update_running_statistics():
    def model():
        return nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1, bias=False),
            nn.BatchNorm2d(4),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(4, 4, 3, stride=2, padding=1, groups=2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(4, 5),
        )

    graph = compare(case(model, images, classify))
    replaced = {graph["tensors"][t["replaces"]]["name"] for t in graph["tensors"] if "replaces" in t}
    assert {"1.running_mean", "1.running_var", "1.num_batches_tracked"} <= replaced


def test_dense_connections_and_channel_slices():
    class Dense(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Conv2d(3, 4, 1)
            self.second = nn.Conv2d(7, 4, 1)
            self.head = nn.Linear(4, 5)

        def forward(self, x):
            x = torch.cat([x, self.first(x)], dim=1)
            left, right = self.second(x).chunk(2, dim=1)
            x = torch.cat([left * right.sigmoid(), right], dim=1)
            x = F.avg_pool2d(F.pad(x, (1, 1, 1, 1)), 2)
            return self.head(x.mean((2, 3)))

    compare(case(Dense, images, classify))


def test_bert_with_tied_embedding_and_ignored_labels():
    from transformers import BertConfig, BertForMaskedLM

    def model():
        return BertForMaskedLM(
            BertConfig(
                vocab_size=13,
                hidden_size=8,
                num_hidden_layers=1,
                num_attention_heads=2,
                intermediate_size=12,
                max_position_embeddings=9,
            )
        )

    def make_inputs(batch):
        words, labels = tokens(batch, words=13)
        mask = torch.ones_like(words)
        mask[:, -1] = 0
        return words, mask, torch.where(torch.rand(labels.shape) < 0.5, labels, -100)

    def loss(model, words, mask, labels):
        return model(input_ids=words, attention_mask=mask, labels=labels).loss

    graph = compare(case(model, make_inputs, loss, dropout=False))
    parameters = [t["name"] for t in graph["tensors"] if t["role"] == "parameter"]
    assert "bert.embeddings.word_embeddings.weight" in parameters
    assert "cls.predictions.decoder.weight" not in parameters
    labels = next(t for t in graph["tensors"] if t["name"] == "labels")
    assert labels["values"]["also"] == [-100]
    positions = next(t for t in graph["tensors"] if t["name"] == "bert.embeddings.position_ids")
    assert positions["values"] == {"start": 0, "step": 1}


class SequenceFirst(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=False)
        self.head = nn.Linear(8, 11)

    def forward(self, words):
        x = self.embedding(words.t())
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[0], dtype=x.dtype)
        return self.head(self.layer(x, src_mask=mask)).transpose(0, 1)


@pytest.mark.parametrize("attention", ["one", "math"])
def test_sequence_first_transformer(attention):
    def loss(model, words, labels):
        return F.cross_entropy(model(words).flatten(0, 1), labels.flatten())

    names = operators(compare(case(SequenceFirst, tokens, loss, attention=attention)))
    found = [name for name in names if "scaled_dot_product" in name]
    assert len(found) == (2 if attention == "one" else 0)
    assert ("aten._safe_softmax.default" in names or "aten._softmax.default" in names) != bool(found)


@pytest.mark.parametrize(
    ("kind", "batch_first", "double"),
    [
        (nn.LSTM, True, True),
        (nn.LSTM, False, True),
        (nn.LSTM, True, False),
        (nn.GRU, False, True),
        (nn.RNN, True, True),
    ],
)
def test_recurrent_layers_are_decomposed(kind, batch_first, double):
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(11, 4)
            self.recurrent = kind(4, 3, num_layers=2, batch_first=batch_first)
            self.head = nn.Linear(3, 11)

        def forward(self, words):
            x = self.embedding(words)
            x = x if batch_first else x.transpose(0, 1)
            x = self.recurrent(x)[0]
            return self.head(x if batch_first else x.transpose(0, 1))

    graph = compare(
        case(Recurrent, lambda batch: tokens(batch, 2), classify_words, double=double),
        tolerance=1e-12 if double else 1e-5,
    )
    fused = {"lstm", "gru", "rnn_tanh", "mkldnn_rnn_layer", "_thnn_fused_lstm_cell"}
    assert not {name.split(".")[1] for name in operators(graph)} & fused


def test_embedding_with_padding_and_ignore_index():
    def model():
        return nn.Sequential(nn.Embedding(11, 4, padding_idx=0), nn.Linear(4, 11))

    def loss(model, x, y):
        return F.cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=3)

    compare(case(model, tokens, loss))


def test_image_labels_with_class_weights():
    def loss(model, x, y):
        weight = torch.linspace(1, 2, 5, dtype=x.dtype)
        return F.cross_entropy(model(x), y, weight=weight, ignore_index=2)

    def make_inputs(batch):
        return torch.randn(batch, 3, 4, 4), torch.randint(0, 5, (batch, 4, 4))

    compare(case(lambda: nn.Conv2d(3, 5, 1), make_inputs, loss))


def test_label_smoothing_with_ignored_labels():
    def loss(model, x, y):
        scores = model(x).flatten(0, 1)
        return F.cross_entropy(scores, y.flatten(), label_smoothing=0.1, ignore_index=3)

    compare(case(lambda: nn.Sequential(nn.Embedding(11, 4), nn.Linear(4, 11)), tokens, loss))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 4)
        self.head = nn.Linear(4, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, words):
        return self.head(self.embedding(words))


def test_tied_embedding_appears_once():
    graph = compare(case(Tied, tokens, classify_words))
    parameters = [t["name"] for t in graph["tensors"] if t["role"] == "parameter"]
    assert parameters == ["embedding.weight"]


def test_masked_mean():
    def loss(model, x, mask):
        return (model(x).pow(2) * mask).sum() / mask.sum()

    def make_inputs(batch):
        return torch.randn(batch, 6), (torch.rand(batch, 4) < 0.5).float()

    compare(case(mlp, make_inputs, loss))


def test_parameters_that_share_a_gradient_and_a_parameter_without_dimensions():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Parameter(torch.randn(4))
            self.two = nn.Parameter(torch.randn(4))
            self.scale = nn.Parameter(torch.tensor(1.5))

        def forward(self, x):
            return (x + (self.one + self.two)) * self.scale

    inputs = lambda batch: (torch.randn(batch, 4),)  # noqa: E731
    for optimizer in (torch.optim.SGD, torch.optim.AdamW):
        compare(
            Case(
                Shared,
                inputs,
                lambda model, x: model(x).pow(2).sum(),
                lambda params, kind=optimizer: kind(params, lr=0.1),
                DOUBLE,
            )
        )
        compare(
            Case(
                Shared,
                inputs,
                lambda model, x: model(x).pow(2).mean(),
                lambda params, kind=optimizer: kind(params, lr=0.1),
            ),
            tolerance=1e-6,
        )


def test_writes_in_place_become_functional():
    class Writer(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 6)
            self.register_buffer("count", torch.zeros(2))
            self.register_buffer("unused", torch.zeros(3))
            self.register_buffer("written", torch.zeros(()))
            self.offset = torch.full((6,), 0.5)  # a plain attribute

        def forward(self, x):
            x = self.linear(x + self.offset.to(x.dtype))
            x = x.clone()
            x[:, 0] = 0.0
            x[:, 1:3] += 1.0
            x.mul_(2.0)
            self.count += 1
            self.count = self.count * 2
            self.written = x.detach().sum().sinh()
            x = x * torch.tensor(3.0)
            return x

    graph = compare(
        Case(Writer, lambda b: (torch.randn(b, 6),), lambda model, x: model(x).pow(2).mean()),
        tolerance=1e-6,
    )
    for op in graph["ops"]:
        name = op["op"].split(".")[1]
        assert not name.endswith("_"), op
    roles = {t["name"]: t["role"] for t in graph["tensors"]}
    offset = next(t for t in graph["tensors"] if t["name"] == "offset")
    assert offset["values"] == {"fill": 0.5}
    assert roles["count"] == "buffer" and roles["offset"] == "buffer"
    assert "unused" not in roles and roles["written"] == "buffer"


def test_views_that_an_in_place_write_makes_anew():
    """The slices and views of before the write are read by nobody."""

    class Splits(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 6)

        def forward(self, x):
            x = self.linear(x)
            first, flat = x[:, :3], x.view(-1)
            x[:, 3:].relu_()
            return flat.view(-1, 6)[:, 3:] * first

    graph = compare(
        case(Splits, lambda b: (torch.randn(b, 6),), lambda model, x: model(x).pow(2).mean())
    )
    assert all("forward" in op for op in graph["ops"] if op["phase"] == "backward")


def test_arguments_that_are_the_default_at_one_batch():
    """Diagonal 0 at batch 3, and at batch 5 of the check."""

    def loss(model, x):
        near = torch.triu(model.weight, 3 - x.shape[0]) + torch.tril(model.weight, x.shape[0] - 5)
        return (model(x) @ near.t()[:4, :4]).pow(2).mean()

    compare(case(lambda: nn.Linear(6, 4), lambda b: (torch.randn(b, 6),), loss))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x / x.std(0),
        lambda x: x / x.std(),
        lambda x: x * x.var(0, correction=1.5),
        lambda x: torch.var_mean(x, 0)[0] * x,
    ],
)
def test_deviations_over_the_batch(function):
    graph = compare(
        case(
            lambda: nn.Linear(6, 4),
            lambda b: (torch.randn(b, 6),),
            lambda model, x: function(model(x)).pow(2).mean(),
        ),
        tolerance=1e-9,
    )
    for text in re.findall(r"\$[^']*/[^']*", str([op["args"] for op in graph["ops"]])):
        assert re.fullmatch(r"\$[\d.e-]+/\d*B([+-]\d+)?", text), text


def test_rows_made_from_the_batch_and_constants():
    class Rows(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 6)

        def forward(self, x, column):
            x = self.linear(x)
            rows = torch.arange(x.shape[0])
            picked = x[rows, column]
            scale = torch.tensor(0.5, dtype=x.dtype)
            large = x.masked_fill(x < 0, float("-inf")).amax(1).clamp(min=0)
            return picked * scale + large / (x.shape[0] * 3) + x.sum(1) / x.shape[0] ** 0

    def make_inputs(batch):
        return torch.randn(batch, 6), torch.randint(0, 6, (batch,))

    graph = compare(case(Rows, make_inputs, lambda model, x, c: model(x, c).sum()))
    text = [str(op["args"]) for op in graph["ops"]]
    assert any("'#B'" in t for op, t in zip(graph["ops"], text) if "arange" in op["op"])
    assert any("'$3B'" in t for t in text)
    assert any("':-inf'" in t for t in text)


def test_a_parameter_that_the_loss_does_not_use():
    class Spare(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.spare = nn.Linear(6, 4), nn.Linear(2, 2)

        def forward(self, x):
            return self.used(x)

    step = heterog.export_training_step(
        Spare,
        lambda batch: (torch.randn(batch, 6), torch.randn(batch, 4)),
        lambda model, x, y: F.l1_loss(model(x), y),
        lambda parameters: torch.optim.AdamW(parameters, weight_decay=0.1),
        "spare",
    )
    assert step.checked.startswith("equal to PyTorch")
    assert step.untrained == ["spare.weight", "spare.bias"]
    assert not any("spare" in tensor["name"] for tensor in step.graph["tensors"])


def test_frozen_parameters_are_buffers():
    def model():
        made = mlp()
        made[0].weight.requires_grad_(False)
        return made

    graph = compare(
        case(
            model,
            lambda batch: (torch.randn(batch, 6), torch.randn(batch, 4)),
            lambda model, x, y: F.l1_loss(model(x), y),
        )
    )
    assert next(t for t in graph["tensors"] if t["name"] == "0.weight")["role"] == "buffer"


def test_the_model_is_left_as_it_was():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Dropout(0.3)).eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    export(
        Case(
            lambda: model,
            lambda batch: (torch.randn(batch, 6),),
            lambda model, x: model(x).sum(),
            options={"dropout": False},
        )
    )
    assert not model.training and model[2].p == 0.3
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]) and type(tensor) is torch.Tensor
    assert not model[0]._forward_hooks and not model[0]._forward_pre_hooks


def test_scopes_and_forward_links():
    graph = compare(
        case(
            mlp,
            lambda batch: (torch.randn(batch, 6), torch.randn(batch, 4)),
            lambda model, x, y: F.mse_loss(model(x), y),
        )
    )
    ops = graph["ops"]
    linear = next(op for op in ops if op["op"] == "aten.addmm.default")
    assert linear["scope"] == "0" and linear["phase"] == "forward"
    backward = [op for op in ops if op["phase"] == "backward"]
    assert all("forward" in op for op in backward)
    assert all(ops[op["forward"]]["phase"] == "forward" for op in backward)
    norm = next(op for op in backward if op["op"] == "aten.native_layer_norm_backward.default")
    assert ops[norm["forward"]]["op"] == "aten.native_layer_norm.default"
    gelu = next(op for op in backward if op["op"] == "aten.gelu_backward.default")
    assert ops[gelu["forward"]]["op"] == "aten.gelu.default"
    phases = [op["phase"] for op in ops]
    assert phases == sorted(phases, key=["forward", "backward", "update"].index)
    assert len({op["name"] for op in ops}) == len(ops)
    assert len({t["name"] for t in graph["tensors"]}) == len(graph["tensors"])
    assert BATCH not in graph["traced_batches"]
