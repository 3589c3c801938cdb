"""What a program does to a model and its optimizer between two steps of a runner, and what has to
come of it: the training that plain PyTorch does, or a refusal in one line.

Everything is in double precision, so that equal means equal to rounding.
"""

import copy
import pickle
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

BATCH = 6
scale = 1.0  # a global that a loss reads


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(5, 8, bias=False)
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.0)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.register_buffer("factor", torch.tensor([1.0, 0.5, 2.0, 1, 1, 1, 1, 1]))
        self.head = nn.Linear(8, 3)
        self.slope = 0.2
        self.config = {"power": 1}
        self.note = "not read"

    def forward(self, x):
        x = F.leaky_relu(self.norm(self.inner(x)), self.slope) * self.factor
        x = self.drop(self.frozen(x)) ** self.config["power"]
        return self.head(x)


class Loss:
    """Reads a number of its own and a global one."""

    def __init__(self):
        self.weight = 1.0

    def __call__(self, model, x, y):
        return F.mse_loss(model(x), y) * self.weight * scale


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01)


def inputs(batch):
    return torch.randn(batch, 5, dtype=torch.float64), torch.randn(batch, 3, dtype=torch.float64)


@dataclass
class Program:
    """What a script has in its hands."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss_fn: object
    step: object = None  # (batch) → loss
    extra: float = 0.0


def program(optimizer=sgd, model=Net) -> Program:
    torch.manual_seed(3)
    made = model().double()
    return Program(made, optimizer([p for p in made.parameters() if p.requires_grad]), Loss())


def plain_step(made: Program):
    def step(batch):
        made.optimizer.zero_grad()
        loss = made.loss_fn(made.model, *batch)
        loss.backward()
        made.optimizer.step()
        return loss.item()

    return step


def data(steps: int) -> list:
    generator = torch.Generator().manual_seed(7)

    def drawn(columns):
        return torch.randn(BATCH, columns, dtype=torch.float64, generator=generator)

    return [(drawn(5), drawn(3)) for _ in range(steps)]


# ---- writes into values: each is carried over ----


def clamp_data(p):
    for parameter in p.model.parameters():
        parameter.data.clamp_(-0.1, 0.1)


def add_in_place(p):
    with torch.no_grad():
        p.model.head.weight.add_(0.1)


def through_numpy(p):
    p.model.head.bias.detach().numpy()[:] = 0.25


def other_memory(p):
    p.model.head.weight.data = p.model.head.weight.detach() * 0.5


def load_model(p):
    state = {key: value * 0.9 if value.is_floating_point() else value
             for key, value in p.model.state_dict().items()}  # fmt: skip
    p.model.load_state_dict(state)


def swap_average(p):
    average = [parameter.detach().clone() * 0.5 for parameter in p.model.parameters()]
    for parameter, value in zip(p.model.parameters(), average, strict=True):
        parameter.data, value = value, parameter.data


def write_buffer(p):
    p.model.factor.mul_(0.5)


def other_buffer(p):
    p.model.factor = torch.full((8,), 0.3, dtype=torch.float64)


def reset_statistics(p):
    p.model.norm.reset_running_stats()


def write_frozen(p):
    p.model.frozen.weight.data.mul_(0.1)


def initialise_anew(p):
    torch.manual_seed(0)
    p.model.head.reset_parameters()


def load_optimizer(p):
    state = copy.deepcopy(p.optimizer.state_dict())
    for entry in state["state"].values():
        for key, value in entry.items():
            if isinstance(value, torch.Tensor) and value.dim():
                entry[key] = value * 0.5
    p.optimizer.load_state_dict(state)


def clear_state(p):
    p.optimizer.state.clear()


def other_state(p):
    p.optimizer.state = type(p.optimizer)(p.optimizer.param_groups, lr=0.1).state


def write_state(p):
    for entry in p.optimizer.state.values():
        for value in entry.values():
            if isinstance(value, torch.Tensor) and value.dim():
                value.mul_(0.5)


def steps_by_itself(p):
    """One step of plain PyTorch in between."""
    plain_step(p)(data(9)[8])


def fewer_rate(p):
    p.optimizer.param_groups[0]["lr"] *= 0.1


def eval_and_back(p):
    p.model.eval()
    with torch.no_grad():
        p.extra = p.model(data(1)[0][0]).sum().item()
    p.model.train()


def copied(p):
    """What is made of the model has values of its own."""
    average = torch.optim.swa_utils.AveragedModel(p.model)
    average.update_parameters(p.model)
    twin = pickle.loads(pickle.dumps(copy.deepcopy(list(p.model.parameters()))))
    with torch.no_grad():
        for parameter in twin:
            parameter.mul_(0.5)
    p.extra = sum(q.detach().sum().item() for q in [*average.parameters(), *twin])


def same_values_again(p):
    """Other objects that say the same."""
    p.model.slope = float("0.2")
    p.model.config = {"power": 1}


def unread_attribute(p):
    p.model.note = "written"
    p.model.epoch = 3


CARRIED = [
    clamp_data, add_in_place, through_numpy, other_memory, load_model, swap_average, write_buffer,
    other_buffer, reset_statistics, write_frozen, initialise_anew, load_optimizer, clear_state,
    other_state, write_state, steps_by_itself, fewer_rate, eval_and_back, copied, same_values_again,
    unread_attribute,
]  # fmt: skip


# ---- changes of what the step is: refused by name, or exported anew ----


def eval_mode(p):
    p.model.eval()


def eval_one(p):
    p.model.norm.eval()


def freeze(p):
    p.model.inner.requires_grad_(False)


def unfreeze(p):
    p.model.frozen.requires_grad_(True)


def other_number(p):
    p.model.slope = 0.01


def other_rate_of_dropout(p):
    p.model.drop.p = 0.5


def write_config(p):
    p.model.config["power"] = 2


def weight_of_loss(p):
    p.loss_fn.weight = 2.0


def global_number(p):
    global scale
    scale = 3.0


def other_method(p):
    p.model.forward = lambda x: p.model.head(p.model.inner(x))


def other_function(p):
    p.model.head.forward = lambda x: F.linear(x, p.model.head.weight)


def hook(p):
    p.model.head.register_forward_hook(lambda module, args, out: out * 2)


def hook_of_parameter(p):
    p.model.head.weight.register_hook(lambda gradient: gradient * 0.1)


def other_head(p):
    p.model.head = nn.Linear(8, 3).double()


def other_parameter(p):
    p.model.head.weight = nn.Parameter(torch.zeros(3, 8, dtype=torch.float64))


def other_layer(p):
    p.model.drop = nn.Identity()


def momentum(p):
    p.optimizer.param_groups[0]["momentum"] = 0.5


def decay(p):
    p.optimizer.param_groups[0]["weight_decay"] = 0.1


def default_dtype(p):
    torch.set_default_dtype(torch.float64)


def one_group_more(p):
    p.optimizer.add_param_group({"params": [p.model.frozen.weight], "lr": 0.5})


def autocast_on(p):
    torch.set_autocast_enabled("cpu", True)


def deterministic(p):
    torch.use_deterministic_algorithms(True)


def other_precision(p):
    torch.set_float32_matmul_precision("medium")


# With words that the refusal has.
REFUSED = {
    eval_mode: "model.eval() was called on",
    eval_one: "model.eval() was called on `norm`",
    freeze: "inner.weight",
    unfreeze: "frozen.weight",
    other_number: "model.slope was 0.2, and is 0.01",
    other_rate_of_dropout: "model.drop.p was 0.0, and is 0.5",
    write_config: "'power'",
    weight_of_loss: "weight",
    global_number: "scale",
    other_method: "model.forward",
    other_function: "model.head.forward",
    hook: "hook",
    hook_of_parameter: "hook",
    other_head: "head",
    other_parameter: "head.weight",
    other_layer: "drop",
    momentum: "momentum is 0.5",
    decay: "weight_decay is 0.1",
    default_dtype: "dtype",
    one_group_more: "param_groups",
    autocast_on: "autocast",
    deterministic: "use_deterministic_algorithms",
    other_precision: "float32_matmul_precision",
}
# Of these the program's optimizer does not know the new parameters, or no check can copy the model.
NOT_EXPORTED = {unfreeze, other_head, other_parameter, other_method, other_function}
