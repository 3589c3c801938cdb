"""What one graph of a step cannot say is refused in one line that names it."""

import pytest
import torch
import torch.distributed as dist
from support import Case, export
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F

from heterog import ExportError


def refused(model, loss_fn=None, make_inputs=None, **case) -> str:
    with pytest.raises(ExportError) as caught:
        export(Case(model, make_inputs or words, loss_fn or total, **case))
    message = str(caught.value)
    assert "\n" not in message and len(message) < 400, message
    return message


def words(batch):
    return (torch.randint(0, 11, (batch, 3)),)


def vectors(batch):
    return (torch.randn(batch, 6),)


def total(model, x):
    return model(x).sum()


class Params4bit(nn.Parameter):
    """As bitsandbytes' own, as far as can be told from its class."""

    __module__ = "bitsandbytes.nn.modules"


class Doubling(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


class Scaled(nn.Parameter):
    """Has methods of its own, and computes as any parameter."""

    scale = 2.0


def linear_of(make) -> nn.Module:
    model = nn.Linear(6, 3)
    model.weight = make(model.weight.detach())
    return model


def test_packed_tensors_are_named():
    packed = linear_of(lambda w: Params4bit(w.to(torch.uint8), requires_grad=False))
    said = refused(packed, make_inputs=vectors)
    assert said.startswith("parameter weight is a Params4bit (of bitsandbytes), which holds its values packed")
    assert "heterog.with_4bit_base(model), any other is loaded without quantization" in said


def test_other_subclasses_are_named():
    model = nn.Linear(6, 3)
    model.register_buffer("mask", torch.ones(3).as_subclass(Doubling))
    said = refused(model, make_inputs=vectors)
    assert said.startswith("buffer mask is a Doubling") and said.endswith("give plain tensors")


def test_sharded_parameters_are_named():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        model = fully_shard(nn.Linear(6, 3), mesh=init_device_mesh("cpu", (1,)))
        said = refused(model, make_inputs=vectors)
    finally:
        dist.destroy_process_group()
    assert said.startswith("parameter weight is a DTensor, cut up among ranks; export the model as it is")


def test_a_parameter_that_computes_as_any_is_exported():
    assert export(Case(linear_of(Scaled), vectors, total))["ops"]


class Table(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(11, 4))
        self.function = function

    def forward(self, x):
        return self.function(x, self.weight)


class Net(nn.Module):
    """A linear layer, then the module `inner`, which does what the test wants."""

    def __init__(self, inner):
        super().__init__()
        self.linear = nn.Linear(6, 4)
        self.inner = inner

    def forward(self, x):
        return self.inner(self.linear(x))


class Does(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def test_embeddings_that_scale_their_weight():
    def embedding():
        return nn.Sequential(nn.Linear(1, 1).requires_grad_(False), nn.Embedding(11, 4, max_norm=1))

    message = refused(lambda: embedding(), lambda model, x: model[1](x).sum())
    assert message.startswith("module 1: ") and "max_norm" in message
    message = refused(lambda: Table(lambda x, weight: F.embedding(x, weight, max_norm=1.0)))
    assert "max_norm" in message
    assert "module 0: " in refused(lambda: nn.Sequential(nn.EmbeddingBag(11, 4, max_norm=1.0)))


def test_parameters_that_forward_writes():
    class Clamps(nn.Linear):
        how = None

        def forward(self, x):
            if self.how == "data":
                self.weight.data.clamp_(-0.1, 0.1)
            else:
                with torch.no_grad():
                    self.weight.mul_(0.5)
            return super().forward(x)

    class ByData(Clamps):
        how = "data"

    for kind in (Clamps, ByData):
        message = refused(lambda kind=kind: nn.Sequential(kind(6, 4)), make_inputs=vectors)
        assert message.startswith("parameter 0.weight is written while the step runs"), message


def test_hooks_that_run_outside_the_step():
    def model():
        made = nn.Linear(6, 4)
        made.weight.register_post_accumulate_grad_hook(lambda p: None)
        return made

    assert "parameter weight has a hook" in refused(model, make_inputs=vectors)

    def optimizer(parameters):
        made = torch.optim.SGD(parameters, lr=0.1)
        made.register_step_post_hook(lambda *_: None)
        return made

    message = refused(lambda: nn.Linear(6, 4), make_inputs=vectors, optimizer=optimizer)
    assert message.startswith("optimizer: it has a hook of register_step_post_hook")


def test_sparse_gradients_and_complex_numbers():
    assert "parameter 0.weight gets a sparse gradient" in refused(
        lambda: nn.Sequential(nn.Embedding(11, 4, sparse=True))
    )
    assert "weight gets a sparse gradient" in refused(
        lambda: nn.EmbeddingBag(11, 4, mode="sum", sparse=True)
    )
    spectrum = Does(lambda x: torch.fft.fft(x).abs())
    message = refused(lambda: Net(spectrum), make_inputs=vectors)
    assert "module inner: " in message and "complex64" in message
    message = refused(
        lambda: nn.Linear(6, 4),
        lambda model, x: model(x.abs()).sum(),
        lambda batch: (torch.randn(batch, 6, dtype=torch.complex64),),
    )
    assert message.startswith("input x: torch.complex64")


def test_buffers_that_change_their_form():
    class Grows(nn.Module):
        def __init__(self, next):
            super().__init__()
            self.linear = nn.Linear(6, 4)
            self.register_buffer("seen", torch.zeros(4))
            self.next = next

        def forward(self, x):
            x = self.linear(x)
            self.seen = self.next(x.detach())
            return x

    message = refused(lambda: Grows(lambda x: x), make_inputs=vectors)
    assert message.startswith("buffer seen is torch.float32 of shape [4] before the step and")
    assert "[B, 4]" in message
    message = refused(lambda: Grows(lambda x: x.mean(0).double()), make_inputs=vectors)
    assert "torch.float64 of shape [4] after" in message
    assert "leaves NoneType in its place" in refused(lambda: Grows(lambda x: None), make_inputs=vectors)


class TinyMoeBlock(nn.Module):
    """Each expert is given the tokens that chose it."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(6, 2)
        self.experts = nn.ModuleList(nn.Linear(6, 4) for _ in range(2))

    def forward(self, x):
        chosen = self.gate(x).argmax(1)
        out = x.new_zeros(x.shape[0], 4)
        for number, expert in enumerate(self.experts):
            (tokens,) = torch.where(chosen == number)
            out = out.index_add(0, tokens, expert(x[tokens]))
        return out


def test_experts_that_gather_their_tokens_are_refused_by_name():
    with pytest.raises(ExportError) as error:
        export(Case(lambda: nn.Sequential(TinyMoeBlock()), vectors, total))
    assert "in module 0 (TinyMoeBlock): which tokens an expert gets" in str(error.value)
    assert "a fixed number of tokens" in str(error.value)
