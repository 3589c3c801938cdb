"""What a module carries beside its weights is part of the step: its mode, its buffers, its hooks."""

import torch
from support import Case, compare, compare_steps, export, operators
from torch import nn
from torch.nn import functional as F

DOUBLE = {"double": True}


def images(batch):
    return torch.randn(batch, 3, 4, 4), torch.randn(batch, 5)


def vectors(batch):
    return torch.randn(batch, 6), torch.randn(batch, 4)


def squares(model, x, y):
    return F.mse_loss(model(x), y)


def roles(graph: dict) -> dict[str, str]:
    return {t["name"]: t["role"] for t in graph["tensors"]}


def replaced(graph: dict) -> set[str]:
    return {graph["tensors"][t["replaces"]]["name"] for t in graph["tensors"] if "replaces" in t}


class Normalised(nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Dropout(0.5))
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(64, 5)
        with torch.no_grad():
            for norm in (self.frozen[1], self.norm):
                norm.running_mean.normal_()
                norm.running_var.uniform_(0.5, 2)

    def forward(self, x):
        return self.head(self.norm(self.frozen(x)).flatten(1))


def fine_tuned():
    model = Normalised()
    model.frozen.eval()
    return model


def test_each_module_is_exported_in_its_own_mode():
    graph = compare(Case(fine_tuned, images, squares, options=DOUBLE))
    assert {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"} <= replaced(graph)
    assert roles(graph)["frozen.1.running_mean"] == "buffer"
    assert not {name for name in replaced(graph) if name.startswith("frozen.1.running")}
    assert "aten.native_dropout.default" not in operators(graph)


def test_exact_batch_norm_leaves_frozen_ones_as_they_are():
    graph = compare(Case(fine_tuned, images, squares, options=DOUBLE | {"batch_norm": "exact"}))
    assert not {name for name in replaced(graph) if name.startswith("frozen.1.running")}


def test_a_model_in_eval_mode_is_trained_in_it():
    def model():
        torch.manual_seed(1)  # its buffers are drawn, and stay as they are
        return Normalised().eval()

    graph = compare(Case(model, images, squares, options=DOUBLE))
    assert not {name for name in replaced(graph) if "running" in name}
    again = compare_steps(Case(model, images, squares, options=DOUBLE), steps=2)
    assert again == graph


class Records(nn.Module):
    """Buffers that the step writes and never reads, in every way that there is to write one."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 4)
        self.register_buffer("loss", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("mean_again", torch.zeros(4))
        self.register_buffer("first", torch.zeros(4))
        self.register_buffer("filled", torch.zeros(4))
        self.register_buffer("other", torch.arange(4.0))
        self.register_buffer("never", torch.arange(4.0))
        self.plain = torch.zeros(4)

    def forward(self, x):
        x = self.linear(x)
        self.mean = x.detach().mean(0)
        self.mean_again = self.mean
        self.first.copy_(x.detach()[0])
        self.filled.fill_(3.0)
        self.other = self.mean + 0 * self.other
        self.plain = x.detach().amax(0)
        return x


def recorded_loss(model, x, y):
    loss = F.mse_loss(model(x), y)
    model.loss = loss.detach()
    return loss


def test_buffers_that_nobody_reads_are_updated():
    def model():
        return Records().double()

    case = Case(model, vectors, recorded_loss, options=DOUBLE)
    graph = compare_steps(case, steps=2)
    written = {"loss", "mean", "mean_again", "first", "filled", "other", "plain"}
    assert written <= replaced(graph) and "never" not in roles(graph)
    made = [t for t in graph["tensors"] if "replaces" in t]
    assert len({id(t) for t in made}) == len(made)


def test_spectral_norm_keeps_both_of_its_vectors():
    def model():
        return nn.utils.parametrizations.spectral_norm(nn.Linear(6, 4))

    graph = compare_steps(Case(model, vectors, squares, options=DOUBLE), steps=3)
    names = replaced(graph)
    assert any(name.endswith("._u") for name in names) and any(n.endswith("._v") for n in names)


def test_hooks_on_parameters_modules_and_activations_run():
    class Inner(nn.Linear):
        def forward(self, x):
            x = super().forward(x)
            x.register_hook(lambda gradient: gradient * 0.5)
            return x

    def model():
        made = nn.Sequential(nn.Linear(6, 6), Inner(6, 4))
        made[0].weight.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
        made[0].weight.register_hook(lambda gradient: gradient * 3)
        made[0].bias.register_hook(lambda gradient: None)
        made[1].register_full_backward_hook(lambda _module, to_x, _to_out: (to_x[0] * 7,))
        made[0].register_full_backward_pre_hook(lambda _module, to_out: (to_out[0] + 1,))
        made[0].register_forward_hook(lambda _module, _args, out: out.tanh())
        return made

    compare_steps(Case(model, vectors, squares, options=DOUBLE), steps=2)


def test_what_forward_keeps_in_attributes_is_gone_afterwards():
    class Caches(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 4)
            self.mask = None
            self.calls = 0

        def forward(self, x):
            if self.mask is None:
                self.mask = torch.full((4,), 2.0, dtype=x.dtype)
            self.calls += 1
            self.last = self.linear(x) * self.mask
            return self.last

    model = Caches().double()
    graph = compare(Case(lambda: model, vectors, squares, options=DOUBLE))
    assert "mask" not in roles(graph)
    fresh = Caches()
    export(Case(lambda: fresh, vectors, squares))
    assert fresh.mask is None and fresh.calls == 0 and not hasattr(fresh, "last")
