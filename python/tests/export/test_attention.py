"""scaled_dot_product_attention in exported steps: one operator, or written out."""

import pytest
import torch
from support import Case, build, compare, compare_steps, export, inputs_of, operators
from torch import nn
from torch.nn import functional as F

import heterog
from heterog.export.operators import attention_reference as reference

LENGTH, WIDTH, HEADS = 5, 8, 2


class Attention(nn.Module):
    def __init__(self, attend, key_heads=HEADS):
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH * key_heads // HEADS)
        self.value = nn.Linear(WIDTH, WIDTH * key_heads // HEADS)
        self.out = nn.Linear(WIDTH, 1)
        self.attend = attend

    def forward(self, x):
        def heads(y):
            return y.unflatten(2, (-1, WIDTH // HEADS)).transpose(1, 2)

        y = self.attend(heads(self.query(x)), heads(self.key(x)), heads(self.value(x)))
        return self.out(y.transpose(1, 2).reshape(x.shape))


def case(attend, key_heads=HEADS, **options) -> Case:
    return Case(
        lambda: Attention(attend, key_heads),
        lambda batch: (torch.randn(batch, LENGTH, WIDTH),),
        lambda model, x: (model(x) ** 2).mean(),
        options={"double": True} | options,
    )


def lower(x):
    return torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()


FORMS = {
    "plain": (F.scaled_dot_product_attention, {}),
    "causal": (lambda *qkv: F.scaled_dot_product_attention(*qkv, is_causal=True), {}),
    "scale": (lambda *qkv: F.scaled_dot_product_attention(*qkv, scale=0.3), {}),
    "mask": (lambda *qkv: F.scaled_dot_product_attention(*qkv, attn_mask=lower(qkv[0])), {}),
    "added": (
        lambda *qkv: F.scaled_dot_product_attention(*qkv, attn_mask=lower(qkv[0]).double() * 0.5),
        {},
    ),
    "mask of each sample": (
        lambda q, k, v: F.scaled_dot_product_attention(
            q, k, v, attn_mask=q.detach().sum((1, 3))[:, None, None] < 1
        ),
        {},
    ),
    "grouped": (
        lambda *qkv: F.scaled_dot_product_attention(*qkv, enable_gqa=True),
        {"key_heads": 1},
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_one_operator_each_way(form):
    attend, given = FORMS[form]
    graph = compare(case(attend, **given))
    found = [op["op"] for op in graph["ops"] if "attention" in op["op"]]
    assert found == [reference.FORWARD, reference.BACKWARD]
    assert not any("softmax" in name for name in operators(graph))


def test_backward_names_its_forward():
    ops = export(case(F.scaled_dot_product_attention))["ops"]
    places = {op["op"]: i for i, op in enumerate(ops) if "attention" in op["op"]}
    assert ops[places[reference.BACKWARD]]["forward"] == places[reference.FORWARD]


def test_written_out_on_request():
    graph = compare(case(F.scaled_dot_product_attention, attention="math"))
    assert not any("attention" in name for name in operators(graph))
    assert any("softmax" in name for name in operators(graph))


def test_another_form_is_refused():
    with pytest.raises(heterog.ExportError, match="attention: 'flash' is not known; use"):
        export(case(F.scaled_dot_product_attention, attention="flash"))


@pytest.mark.parametrize(
    "attend",
    [
        lambda q, k, v: F.scaled_dot_product_attention(
            q, k, v, attn_mask=q.mean((0, 1, 3)).expand(LENGTH, LENGTH)
        ),
        lambda *qkv: F.scaled_dot_product_attention(*[x.flatten(0, 1) for x in qkv]).view(
            qkv[0].shape
        ),
    ],
    ids=["a learnt bias", "three dimensions"],
)
def test_what_cannot_be_one_is_written_out(attend):
    assert not any("attention" in name for name in operators(compare(case(attend))))


def test_multi_head_attention_of_torch():
    def model():
        return nn.TransformerEncoderLayer(WIDTH, HEADS, 16, dropout=0.0, batch_first=True)

    graph = compare_steps(
        Case(
            model,
            lambda batch: (torch.randn(batch, LENGTH, WIDTH),),
            lambda model, x: (model(x) ** 2).mean(),
            options={"double": True},
        )
    )
    assert reference.FORWARD in operators(graph)


def dropping(rate):
    return lambda *qkv: F.scaled_dot_product_attention(*qkv, dropout_p=rate, is_causal=True)


def test_dropout_of_weights_is_in_the_operator():
    graph = export(case(dropping(0.25)))
    rates = [op["args"][3 if op["op"] == reference.FORWARD else 6] for op in graph["ops"]
             if "attention" in op["op"]]  # fmt: skip
    assert rates == [0.25, 0.25]
    assert "native_dropout" not in str(operators(graph))


def test_dropout_is_left_out_on_request():
    graph = export(case(dropping(0.25), dropout=False))
    assert [op["args"][3] for op in graph["ops"] if op["op"] == reference.FORWARD] == [0.0]


def test_the_reference_drops_alike_in_both_directions():
    """The loss is linear in what backward returns for the values: <dL/dv, v> = <dL/dout, out>."""
    torch.manual_seed(1)
    forward, backward = reference.operators(reference.drawn).values()
    q, k, v, gradient = torch.randn(4, 3, 2, LENGTH, 4, dtype=torch.float64)
    out, sums = forward(q, k, v, 0.5, True)
    _, _, to_value = backward(gradient, q, k, v, out, sums, 0.5, True)
    assert torch.allclose((to_value * v).sum(), (gradient * out).sum())
    whole, _ = forward(q, k, v, 0.0, True)
    assert not torch.allclose(out, whole)


def test_autocast_narrows_what_attention_reads():
    one = case(F.scaled_dot_product_attention, double=False, autocast="bfloat16")
    graph = export(one)
    forward = next(op for op in graph["ops"] if op["op"] == reference.FORWARD)
    tensors = graph["tensors"]
    assert [tensors[int(a[1:])]["dtype"] for a in forward["args"][:3]] == ["bfloat16"] * 3
    assert [tensors[o]["dtype"] for o in forward["outputs"]] == ["bfloat16", "float32"]
    assert inputs_of(graph, one) and build(one)


def test_heads_that_are_cut_from_channels():
    """The numbers of a head lie apart in memory, where the kernel of CPUs takes them for a row."""

    class Channels(nn.Module):
        def __init__(self):
            super().__init__()
            self.project = nn.Conv2d(3, 3 * WIDTH, 1)
            self.out = nn.Linear(WIDTH, 1)

        def forward(self, x):
            x = self.project(x).flatten(2).unsqueeze(1).transpose(2, 3)
            x = F.scaled_dot_product_attention(*x.chunk(3, 3))
            return self.out(x)

    graph = compare(
        Case(
            Channels,
            lambda batch: (torch.randn(batch, 3, 2, 2),),
            lambda model, x: (model(x) ** 2).mean(),
            options={"double": True, "check": False},
        )
    )
    assert reference.FORWARD in operators(graph)
