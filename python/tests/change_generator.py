"""Small models whose training a program changes in mid-run, by a seed: as plain PyTorch would go on, or
a refusal. What is changed is drawn from all that the registry of a step knows."""

import copy
import random
from dataclasses import dataclass

import torch
from change_cases import CARRIED, Net, Program, adam, plain_step, sgd
from torch import nn
from torch.nn import functional as F

import heterog
from heterog.base.errors import HeterogError

BATCH = 6
STEPS = 6


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm1d(4, momentum=0.2)
        self.pool = nn.AvgPool1d(2, 1)
        self.head = nn.Linear(16, 3)
        self.register_buffer("factor", torch.ones(8))
        self.frozen = nn.Linear(3, 3).requires_grad_(False)
        self.options = {"gain": 1.5, "act": "tanh"}

    def forward(self, x):
        x = getattr(torch, self.options["act"])(self.norm(self.conv(x[:, None])))
        x = self.head(self.pool(x).flatten(1)) * self.options["gain"]
        return self.frozen(x) * self.factor[:3]


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRU(1, 6, batch_first=True)
        self.norm = nn.LayerNorm(6, eps=1e-4)
        self.frozen = nn.Embedding(5, 6).requires_grad_(False)
        self.register_buffer("factor", torch.ones(8))
        self.head = nn.Linear(6, 3)
        self.scales = [1.0, 0.5]

    def forward(self, x):
        h = self.norm(self.cell(x[..., None])[0].mean(1)) + self.frozen.weight[0]
        return self.head(h) * self.scales[1] * self.factor[0]


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(5, 8)
        self.act = nn.ELU(0.7)
        self.norm = nn.GroupNorm(2, 8)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.register_buffer("factor", torch.linspace(0.5, 1.5, 8))
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = self.norm(self.act(self.inner(x))) * self.factor
        return self.head(F.linear(self.frozen(x) @ self.inner.weight, self.inner.weight))


MODELS = [Net, Convolutions, Recurrent, Tied]
OPTIMIZERS = [
    sgd, adam,
    lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5),
    lambda p: torch.optim.Adagrad(p, lr=0.05),
]  # fmt: skip


class Loss:
    def __init__(self):
        self.weight, self.kind = 1.0, "mse_loss"

    def __call__(self, model, x, y):
        return getattr(F, self.kind)(model(x), y) * self.weight


def inputs(batch):
    return torch.randn(batch, 5, dtype=torch.float64), torch.randn(batch, 3, dtype=torch.float64)


def program(seed: int) -> Program:
    torch.manual_seed(3)
    model = MODELS[seed % len(MODELS)]().double()
    made = OPTIMIZERS[seed // len(MODELS) % len(OPTIMIZERS)]
    trained = [p for p in model.parameters() if p.requires_grad]
    return Program(model, made(trained), Loss())


# ---- one entry of the registry, by its place in the order of the model ----


def _number(draw, made: Program) -> None:
    """A number, a switch or a name of a module, a table or the loss."""
    holders = [vars(module) for module in made.model.modules()]
    holders += [v for h in list(holders) for k, v in h.items() if k in ("options", "config")]
    holders.append(vars(made.loss_fn))
    entries = [
        (holder, key)
        for holder in holders
        for key, value in holder.items()
        if isinstance(value, (bool, int, float)) and key not in _OF_TORCH
    ]
    holder, key = entries[draw.randrange(len(entries))]
    value = holder[key]
    factor = draw.choice([0.5, 2])
    holder[key] = not value if isinstance(value, bool) else type(value)(value * factor)


_OF_TORCH = {"_is_full_backward_hook", "call_super_init", "_version", "_is_hf_initialized"}


def _mode(draw, made: Program) -> None:
    module = draw.choice(list(made.model.modules()))
    module.train(not module.training)


def _mode_for_a_while(draw, made: Program) -> None:
    made.model.eval()
    with torch.no_grad():
        made.extra += made.model(inputs(4)[0] * 0 + 0.1).sum().item()
    made.model.train()


def _gradient(draw, made: Program) -> None:
    parameter = draw.choice(list(made.model.parameters()))
    parameter.requires_grad_(not parameter.requires_grad)


def _values(draw, made: Program) -> None:
    names = [n for n, t in made.model.state_dict().items() if t.is_floating_point()]
    name = draw.choice(names)
    tensor = dict(made.model.named_parameters()) | dict(made.model.named_buffers())
    tensor, way = tensor[name], draw.randrange(5)
    with torch.no_grad():
        if way == 0:
            tensor.mul_(0.9)
        elif way == 1:
            tensor.data.add_(0.01)
        elif way == 2:
            tensor.detach().numpy()[...] *= 0.8
        elif way == 3:
            tensor.data = tensor.data * 1.1
        else:
            state = {k: v.clone() for k, v in made.model.state_dict().items()}
            state[name] = state[name] * 0.7
            made.model.load_state_dict(state)


def _state(draw, made: Program) -> None:
    way = draw.randrange(3)
    if way == 0:
        made.optimizer.load_state_dict(copy.deepcopy(made.optimizer.state_dict()))
        return
    for entry in made.optimizer.state.values():
        for key, value in entry.items():
            if isinstance(value, torch.Tensor) and value.dim():
                entry[key] = value * 0.5 if way == 1 else value.mul_(0.5)


def _group(draw, made: Program) -> None:
    group = made.optimizer.param_groups[0]
    key = draw.choice([k for k, v in group.items() if type(v) is float])
    group[key] = group[key] * 0.5 + (0.01 if key != "lr" else 0)


def _module(draw, made: Program) -> None:
    paths = [path for path, module in made.model.named_modules()
             if path and not list(module.parameters())]  # fmt: skip
    if paths:
        made.model.set_submodule(draw.choice(paths), nn.Tanh())


def _hook(draw, made: Program) -> None:
    module = draw.choice([m for p, m in made.model.named_modules() if p])
    module.register_forward_pre_hook(lambda _, args: tuple(a * 1.5 for a in args))


def _written(draw, made: Program) -> None:
    ways = [way for way in CARRIED if way.__name__ not in _OF_NET]
    draw.choice(ways)(made)


_OF_NET = {"same_values_again", "reset_statistics", "eval_and_back", "steps_by_itself"}
WAYS = [_number, _mode, _mode_for_a_while, _gradient, _values, _values, _state, _group, _module, _hook,
        _written]  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    kind: str  # equal, refused, DIFFERENT
    detail: str = ""


def outcome(seed: int, cache) -> Outcome:
    draw = random.Random(seed)
    changes = {draw.randrange(1, STEPS): (draw.choice(WAYS), draw.random())
               for _ in range(draw.randint(1, 2))}  # fmt: skip
    on_change = draw.choice(["refuse", "export"])
    torch.manual_seed(seed)
    batches = [inputs(BATCH) for _ in range(STEPS)]
    names = [way.__name__ for way, _ in changes.values()]

    def train(made: Program) -> list[float]:
        losses = []
        for number, batch in enumerate(batches):
            if number in changes:
                way, luck = changes[number]
                way(random.Random(luck), made)
            losses.append(made.step(batch))
        return losses

    plain = program(seed)
    plain.step = plain_step(plain)
    try:
        expected = train(plain)
    except Exception as error:  # PyTorch itself stops there
        expected = error
    made = program(seed)
    settings = {"batch": BATCH, "cache": cache, "threads": 1, "planner": "ev-ar", "check": False,
                "batch_norm": "exact", "on_change": on_change}  # fmt: skip
    with heterog.get_runner(made.model, inputs, made.loss_fn, made.optimizer, "cpu:2", settings) as runner:
        made.step = runner.step
        try:
            found = train(made)
        except HeterogError as error:
            return Outcome("refused", f"{names}: {error}")
        except Exception as error:
            stopped = isinstance(expected, Exception)
            return Outcome("equal" if stopped else "DIFFERENT", f"{names}: {error!r}")
        if isinstance(expected, Exception):
            return Outcome("DIFFERENT", f"{names}: PyTorch stopped at {expected!r}")
        if not torch.allclose(torch.tensor(found), torch.tensor(expected), rtol=1e-8, equal_nan=True):
            return Outcome("DIFFERENT", f"{names}, {on_change}: {found} and {expected}")
        if abs(made.extra - plain.extra) > 1e-8 * abs(plain.extra):
            return Outcome("DIFFERENT", f"{names}: the model outside a step")
        for name, value in plain.model.state_dict().items():
            if not torch.allclose(made.model.state_dict()[name], value, rtol=1e-7, atol=1e-9, equal_nan=True):
                return Outcome("DIFFERENT", f"{names}, {on_change}: {name}")
    return Outcome("equal", f"{names}")
