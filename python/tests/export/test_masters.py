"""Parameters in float32 that are computed with in half precision: as PyTorch trains with copies."""

import copy

import pytest
import torch
from support import BATCH, Case, export, given_values
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.stateless import _reparametrize_module

import heterog
from heterog.export.interpreter import run_step
from heterog.export.loss_scaling import LossScaling

BF16 = {"param_dtype": "bfloat16"}
# Half of the last of 8 (bfloat16) or 11 (float16) digits, for each of a dozen roundings.
BOUND = {"bfloat16": 12 * 2.0**-9, "float16": 12 * 2.0**-12}


class Words(nn.Module):
    """With a frozen layer, a buffer, and a matrix that is used twice."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 16)
        self.frozen = nn.Linear(16, 16)
        self.frozen.requires_grad_(False)
        self.norm = nn.LayerNorm(16)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 16))
        self.out = nn.Linear(16, 11, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens, noise):
        x = self.embed(tokens) + noise
        x = F.gelu(self.norm(self.frozen(x))) * self.scale.to(x.dtype)
        return self.out(x)


def words(batch):
    return torch.randint(11, (batch, 3)), torch.randn(batch, 3, 16), torch.randint(11, (batch, 3))


def loss_fn(model, tokens, noise, labels):
    return F.cross_entropy(model(tokens, noise).float().flatten(0, 1), labels.flatten())


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=0.02)


def case(**options) -> Case:
    return Case(Words, words, loss_fn, optimizer=adamw, options=BF16 | options)


def eager_step(model, optimizer, inputs, narrow, scale=1.0):
    """As people write it: copies in half precision, whose gradients become those of the masters."""
    optimizer.zero_grad()
    copies = {name: p.to(narrow) for name, p in model.named_parameters()}
    tokens, noise, labels = inputs
    with _reparametrize_module(model, copies, tie_weights=True):
        loss = loss_fn(model, tokens, noise.to(narrow), labels)
    (loss * scale).backward()
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad /= scale
    optimizer.step()
    return loss.detach()


@pytest.mark.parametrize("narrow", ["bfloat16", "float16"])
def test_what_is_narrow_and_what_is_not(narrow):
    graph = export(case(param_dtype=narrow))
    made = {op["op"]: graph["tensors"][op["outputs"][0]]["dtype"] for op in graph["ops"]}
    for operator in ("embedding", "addmm", "native_layer_norm", "gelu"):
        assert made[f"aten.{operator}.default"] == narrow, operator
    roles = {}
    for tensor in graph["tensors"]:
        roles.setdefault(tensor["role"], set()).add(tensor["dtype"])
    assert roles["parameter"] == roles["gradient"] == {"float32"}
    assert narrow not in roles["optimizer_state"]
    scaled = any(t["name"] == "loss_scale/scale" for t in graph["tensors"])
    assert scaled == (narrow == "float16")


def test_gradients_travel_in_the_precision_of_the_copies_if_asked():
    graph = export(case(reduce_dtype="bfloat16"))
    gradients = [t for t in graph["tensors"] if t["role"] == "gradient"]
    assert {t["dtype"] for t in gradients} == {"bfloat16"}
    update = [op for op in graph["ops"] if op["phase"] == "update"]
    kinds = {op["op"] for op in update}
    assert kinds == {"aten._to_copy.default", "aten._fused_adamw.tensor_lr"}


@pytest.mark.parametrize("options", [{}, {"reduce_dtype": "bfloat16"}, {"fused_update": False}])
def test_five_steps_are_those_of_copies_written_by_hand(options):
    one = case(**options)
    graph = export(one)
    torch.manual_seed(5)
    eager = Words()
    optimizer = adamw([p for p in eager.parameters() if p.requires_grad])
    values = None
    for number in range(1, 6):
        torch.manual_seed(number)
        inputs = words(BATCH)
        names = ("tokens", "noise", "labels")
        given = dict(zip(names, inputs, strict=True))
        if values is None:
            values = given_values(graph, copy.deepcopy(eager), given)
        loss, values = run_step(graph, values, given, BATCH, lr=0.02, step=number)
        expected = eager_step(eager, optimizer, inputs, torch.bfloat16)
        assert torch.allclose(loss, expected, rtol=BOUND["bfloat16"])
        for name, parameter in eager.named_parameters():
            kept = values[name]
            assert kept.dtype == torch.float32
            # An update of Adam is at most about its rate, whatever the gradient's size.
            assert torch.allclose(kept, parameter, atol=number * 0.02 * BOUND["bfloat16"]), name


@pytest.mark.parametrize("narrow", ["bfloat16", "float16"])
def test_on_two_unequal_devices_as_on_one(narrow, tmp_path):
    torch.manual_seed(3)
    start = Words()
    trained = {}
    for name, planner in {"one": "single", "two": "cp-ar"}.items():
        config = {
            "batch": 9, "param_dtype": narrow, "reduce_dtype": narrow, "planner": planner,
            "cache": str(tmp_path), "loss_scaling": LossScaling(2.0**10) if narrow == "float16" else None,
        }  # fmt: skip
        devices = ["V100-PCIE-16GB", "RTX-2080-Ti"][: 1 if name == "one" else 2]
        config["any_device"] = True
        own = Words()
        own.load_state_dict(start.state_dict())
        with heterog.get_runner(own, words, loss_fn, adamw, devices, config) as runner:
            for number in range(1, 6):
                torch.manual_seed(number)
                runner.step(words(9))
            trained[name] = runner.state_dict()
    for key, tensor in trained["one"].items():
        assert tensor.dtype == torch.float32
        assert torch.allclose(trained["two"][key], tensor, atol=5 * 0.02 * BOUND[narrow]), key
        assert not torch.equal(tensor, start.state_dict()[key]) or "frozen" in key or key == "scale"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"param_dtype": "int8"}, "param_dtype: 'int8' is not known"),
        ({"param_dtype": None, "reduce_dtype": "bfloat16"}, "with param_dtype alone"),
        ({"reduce_dtype": "float16"}, "is neither 'float32' nor the param_dtype, 'bfloat16'"),
        ({"autocast": "bfloat16"}, "param_dtype and autocast exclude each other"),
        ({"double": True}, "param_dtype and double exclude each other"),
    ],
)
def test_what_makes_no_sense_is_refused(options, line):
    with pytest.raises(heterog.ExportError) as error:
        export(case(**options))
    assert line in str(error.value)


class Clamped(nn.Linear):
    def forward(self, x):
        with torch.no_grad():
            self.weight.clamp_(-1, 1)
        return super().forward(x)


def test_what_is_written_into_a_copy_is_not_lost():
    def vectors(batch):
        return (torch.randn(batch, 6),)

    def mean_square(model, x):
        return model(x).float().square().mean()

    with pytest.raises(heterog.ExportError, match="parameter weight is written while the step runs"):
        export(Case(lambda: Clamped(6, 2), vectors, mean_square, options=BF16))
