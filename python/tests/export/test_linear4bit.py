"""Linear layers over a frozen weight of 4 bits: what they compute, how they are exported, and what is refused."""

import ast
import copy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import heterog
from heterog.export.graph.writer import read_graph
from heterog.export.operators.linear4bit import BLOCK, NORMAL_FLOAT, pack, unpack

ROOT = Path(__file__).parents[3]


def base(rows=6, columns=11):
    torch.manual_seed(0)
    layer = nn.Linear(columns, rows).requires_grad_(False)
    return layer, heterog.Linear4bit(layer.weight, layer.bias)


def nearest(weight: torch.Tensor) -> torch.Tensor:
    """What is kept of a weight, number by number."""
    flat, kept = weight.reshape(-1), []
    for start in range(0, flat.numel(), BLOCK):
        block = flat[start : start + BLOCK]
        scale = block.abs().max()
        kept += [min((level * scale for level in torch.tensor(NORMAL_FLOAT)), key=lambda v: abs(v - x)) for x in block]
    return torch.stack(kept).view_as(weight)


@pytest.mark.parametrize("rows, columns", [(6, 11), (1, 1), (8, 16), (3, 43)])
def test_half_a_byte_a_number_and_a_scale_a_block(rows, columns):
    torch.manual_seed(1)
    weight = torch.randn(rows, columns)
    packed, scales = pack(weight)
    count = rows * columns
    assert packed.dtype == torch.uint8 and packed.shape == ((count + 1) // 2,)
    assert scales.dtype == torch.float32 and scales.shape == ((count + BLOCK - 1) // BLOCK,)
    torch.testing.assert_close(unpack(packed, scales, rows, columns, torch.float32), nearest(weight))


def test_a_weight_of_zeros_stays_zero():
    assert not unpack(*pack(torch.zeros(4, 5)), 4, 5, torch.float32).any()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_layer_is_that_of_the_unpacked_weight(dtype):
    layer, packed = base()
    weight = unpack(packed.packed, packed.scales, 6, 11, dtype)
    x = torch.randn(2, 3, 11, dtype=dtype, requires_grad=True)
    packed.bias = nn.Parameter(layer.bias.to(dtype), requires_grad=False)
    y, expected = packed(x), F.linear(x, weight, packed.bias)
    torch.testing.assert_close(y, expected)
    gradient = torch.randn_like(y)
    (found,) = torch.autograd.grad(y, x, gradient)
    torch.testing.assert_close(found, torch.autograd.grad(expected, x, gradient)[0])


class Tuned(nn.Module):
    """Two frozen layers, the first with an adapter, and a head."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 12)
        self.second = nn.Linear(12, 8)
        self.lm_head = nn.Linear(8, 5)
        self.requires_grad_(False)
        self.down, self.up = nn.Linear(8, 2, bias=False), nn.Linear(2, 12, bias=False)

    def forward(self, x):
        return self.lm_head(self.second(torch.tanh(self.first(x) + self.up(self.down(x)))))


def export(model):
    torch.manual_seed(2)
    return heterog.export_training_step(
        model, lambda n: (torch.randn(n, 8), torch.randint(0, 5, (n,))), lambda m, x, y: F.cross_entropy(m(x), y),
        lambda p: torch.optim.Adam([q for q in p if q.requires_grad], lr=1e-3), "tuned",
    )  # fmt: skip


def test_a_step_has_one_operator_a_pass(tmp_path):
    """And the frozen base takes half a byte a number of memory, as a buffer."""
    export(lambda: heterog.with_4bit_base(Tuned())).save(tmp_path / "g.json.gz")
    graph = read_graph(tmp_path / "g.json.gz")
    kinds = [op["op"] for op in graph["ops"] if op["op"].startswith("heterog.")]
    # The gradient of the second layer's input alone: below the first there is nothing to train.
    assert sorted(kinds) == ["heterog.linear4bit.default"] * 2 + ["heterog.linear4bit_backward.default"]
    bytes_of = {t["name"]: t["shape"] for t in graph["tensors"] if t["role"] == "buffer" and t["dtype"] == "uint8"}
    assert bytes_of == {"first.packed": [48], "second.packed": [48]}


def test_what_is_frozen_is_packed_and_nothing_else():
    model = heterog.with_4bit_base(Tuned())
    kinds = {name: type(layer).__name__ for name, layer in model.named_children()}
    assert kinds == {"first": "Linear4bit", "second": "Linear4bit", "lm_head": "Linear", "down": "Linear", "up": "Linear"}
    assert heterog.with_4bit_base(Tuned(), skip=()).lm_head.packed.numel() == 20
    with pytest.raises(heterog.InputError, match="no frozen linear layer; call requires_grad_.False."):
        heterog.with_4bit_base(nn.Sequential(nn.Linear(3, 4)))


def test_layers_of_bitsandbytes_are_taken_by_their_sizes():
    """bitsandbytes is not installed with heterog: a class of its name stands for its layer."""

    class Linear4bit(nn.Linear):
        __module__ = "bitsandbytes.nn.modules"

    class Params4bit(nn.Parameter):
        __module__ = "bitsandbytes.nn.modules"

    model = Tuned()
    model.first = Linear4bit(8, 12)
    model.first.weight = Params4bit(torch.zeros(48, 1, dtype=torch.uint8), requires_grad=False)
    with pytest.raises(heterog.ExportError, match=r"first.weight is a Params4bit .of bitsandbytes.*with_4bit_base"):
        export(model)
    heterog.with_4bit_base(model)
    assert model.first.packed.shape == (48,) and model.first.packed.is_meta and model.first.bias is not None


ORDERS = """
import sys, torch
from torch import nn
import heterog

def library():  # knows the operators, unless the exporter has told PyTorch of them
    heterog.plan("llama70b_qlora-tiny", "local-2cpu", batch=6, planner="ev-ar")

def exporter():
    layer = heterog.Linear4bit(torch.arange(12.0).view(3, 4))
    assert layer(torch.ones(2, 4)).shape == (2, 3)

for name in sys.argv[1:]:
    globals()[name]()
plan = heterog.plan("llama70b_qlora-tiny", "local-2cpu", batch=6, planner="ev-ar")
heterog.verify("llama70b_qlora-tiny", "local-2cpu", plan)
layer = heterog.Linear4bit(torch.arange(12.0).view(3, 4))
x = torch.ones(2, 4, requires_grad=True)
layer(x).sum().backward()
print(layer(x).tolist(), x.grad.tolist())
"""


@pytest.mark.parametrize("order", [("library", "exporter"), ("exporter", "library")])
def test_the_library_and_the_exporter_share_the_operators(order, tmp_path):
    """Whichever comes first in a process; both compute the same."""
    ran = subprocess.run([sys.executable, "-c", ORDERS, *order], capture_output=True, text=True, cwd=ROOT)
    weight = unpack(*pack(torch.arange(12.0).view(3, 4)), 3, 4, torch.float32)
    expected = [[row.sum().item() for row in weight]] * 2, [weight.sum(0).tolist()] * 2
    assert ran.returncode == 0, ran.stderr[-2000:]
    rows, gradient = map(torch.tensor, ast.literal_eval(f"[{ran.stdout.strip().replace('] [', '], [')}]"))
    torch.testing.assert_close(rows, torch.tensor(expected[0]))
    torch.testing.assert_close(gradient, torch.tensor(expected[1]))


def test_a_runner_trains_adapters_over_it(tmp_path):
    """On two devices, as PyTorch does on one."""
    model = heterog.with_4bit_base(Tuned())
    plain = copy.deepcopy(model)

    def optimizer_of(m):
        return torch.optim.Adam([p for p in m.parameters() if p.requires_grad], lr=1e-2)

    def make_inputs(n):
        return torch.randn(n, 8), torch.randint(0, 5, (n,))

    def loss_fn(m, x, y):
        return F.cross_entropy(m(x), y)

    own = optimizer_of(plain)
    settings = {"batch": 12, "threads": 1, "cache": str(tmp_path)}
    runner = heterog.get_runner(model, make_inputs, loss_fn, optimizer_of(model), "cpu:2", settings)
    for _ in range(3):
        batch = make_inputs(12)
        own.zero_grad()
        expected = loss_fn(plain, *batch)
        expected.backward()
        own.step()
        assert runner.step(batch) == pytest.approx(expected.item(), abs=1e-5)
    runner.sync_to_model()
    runner.close()
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
