"""Small random training steps, as Python source: one seed is one model.

A model is a chain of blocks (model_blocks.py), each drawn by a generator of its own, so that blocks
can be left out one by one and the others stay: that is how a find is made small.
"""

import random
from dataclasses import dataclass, field

import model_blocks
import model_losses


@dataclass
class Generated:
    """A model's source, and what it is made of."""

    seed: int
    source: str
    blocks: list[str]  # by name, in order; what `without` refers to


@dataclass
class Draft:
    """A model being written. Its value is `h`, whose shape has the batch at one place."""

    rng: random.Random
    shape: list = field(default_factory=list)  # numbers, and one "B"
    init: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    inputs: dict[str, str] = field(default_factory=dict)  # name → how it is made
    setup: list[str] = field(default_factory=list)  # modes, frozen parameters, after __init__
    config: dict = field(default_factory=dict)
    made: int = 0

    @property
    def batch_at(self) -> int:
        return self.shape.index("B")

    @property
    def features(self) -> int:
        """The size of the last dimension, 0 where it is the batch's."""
        return self.shape[-1] if self.shape[-1] != "B" else 0

    def emit(self, *lines: str) -> None:
        self.lines += lines

    def name(self, stem: str) -> str:
        self.made += 1
        return f"{stem}{self.made}"

    def module(self, expression: str, stem: str = "layer", *, modal: bool = False) -> str:
        """A submodule; how to call it. `modal`: one that eval() changes."""
        name = self.name(stem)
        self.init.append(f"self.{name} = {expression}")
        if self.rng.random() < (0.35 if modal else 0.05):
            self.setup.append(f"model.{name}.eval()")
        if self.rng.random() < 0.1:
            self.setup.append(f"model.{name}.requires_grad_(False)")
        return f"self.{name}"

    def parameter(self, expression: str) -> str:
        name = self.name("weight")
        self.init.append(f"self.{name} = nn.Parameter({expression})")
        return f"self.{name}"

    def buffer(self, expression: str, **options) -> str:
        name = self.name("buffer")
        given = "".join(f", {key}={value}" for key, value in options.items())
        self.init.append(f"self.register_buffer({name!r}, {expression}{given})")
        return f"self.{name}"

    def input(self, stem: str, expression: str) -> str:
        """One more tensor of data, of `batch` samples."""
        for name, made in self.inputs.items():
            if made == expression and self.rng.random() < 0.7:
                return name
        name = self.name(stem)
        self.inputs[name] = expression
        return name


def written(lines, loss: str, *, init=(), inputs=None, setup=(), training=None, config=None) -> str:
    """A model by hand, in the same form: lines from `x` (batch, 4), or `inputs`, to `h`."""
    draft = Draft(random.Random(0), init=list(init), lines=list(lines), setup=list(setup))
    draft.inputs = {"x": "torch.randn(batch, 4)"} | (inputs or {})
    draft.config = config or {}
    loss = model_losses.Loss([f"return {loss}"])
    training = training or "torch.optim.SGD(trained(model), lr=0.05)"
    return _source(0, draft, loss, training, 8)


def generate(seed: int, without: frozenset[int] = frozenset()) -> Generated:
    """The model of a seed, or what is left of it without some of its blocks."""
    head = random.Random(f"{seed}/head")
    draft = Draft(random.Random(f"{seed}/start"))
    model_blocks.start(draft)
    names = []
    for place in range(head.choice((1, 2, 2, 3, 3, 4, 5))):
        draft.rng = random.Random(f"{seed}/{place}")
        name = model_blocks.draw(draft, place in without)
        names.append(name)
    draft.rng = random.Random(f"{seed}/loss")
    loss = model_losses.draw(draft)
    draft.rng = random.Random(f"{seed}/training")
    place = len(names)
    training = _training(draft, plain=place in without)
    names.append(training)
    if place + 1 in without:
        draft.setup = []
    names.append("modes and frozen parameters")
    batch = head.choice((5, 7, 8, 8, 9, 11, 12, 13, 16))
    return Generated(seed, _source(seed, draft, loss, training, batch), names)


def _training(draft: Draft, plain: bool) -> str:
    """The optimizer, as an expression of `model`."""
    rng = draft.rng
    if plain:
        return "torch.optim.SGD(trained(model), lr=0.05)"
    if rng.random() < 0.25:
        draft.config["clip_norm"] = rng.choice((0.05, 0.5, 100.0))
    decay = rng.choice(("", "", ", weight_decay=0.1"))
    maximize = ", maximize=True" if rng.random() < 0.05 else ""
    parameters = "trained(model)"
    if rng.random() < 0.2:
        parameters = "two_groups(model)"
    if rng.random() < 0.3:
        draft.config["fused_update"] = False
    kind = rng.choice(
        ("SGD",) * 5
        + ("momentum", "momentum", "nesterov", "Adam", "AdamW", "AdamW", "amsgrad", "other", "other")
    )
    if kind == "other":
        # Those that divide by what was rounding are left out, as below.
        return rng.choice(_OTHERS).format(parameters=parameters, decay=decay)
    if kind == "SGD":
        return f"torch.optim.SGD({parameters}, lr=0.05{decay}{maximize})"
    if kind in ("momentum", "nesterov"):
        nesterov = ", nesterov=True" if kind == "nesterov" else ""
        return f"torch.optim.SGD({parameters}, lr=0.05, momentum=0.9{nesterov}{decay}{maximize})"
    name = kind if kind != "amsgrad" else rng.choice(("Adam", "AdamW"))
    amsgrad = ", amsgrad=True" if kind == "amsgrad" else ""
    # With the usual eps of 1e-8, a gradient that is zero but for rounding becomes a step of its own.
    return f"torch.optim.{name}({parameters}, lr=0.02, eps=1e-3{amsgrad}{decay}{maximize})"


_OTHERS = (
    "torch.optim.SGD({parameters}, lr=0.05, momentum=0.9, dampening=0.3{decay})",
    "torch.optim.RMSprop({parameters}, lr=0.01, eps=1e-2, momentum=0.5{decay})",
    "torch.optim.Adagrad({parameters}, lr=0.02, eps=1e-2{decay})",
    "torch.optim.Adadelta({parameters}, lr=0.1, eps=1e-2{decay})",
    "torch.optim.Adamax({parameters}, lr=0.02, eps=1e-2{decay})",
    "torch.optim.NAdam({parameters}, lr=0.02, eps=1e-2{decay})",
    "torch.optim.RAdam({parameters}, lr=0.02, eps=1e-2{decay})",
    "torch.optim.ASGD({parameters}, lr=0.05{decay})",
)


_FRAME = '''\
# seed {seed}
import torch
from torch import nn
from torch.nn import functional as F

torch.set_default_dtype(torch.float64)
BATCH = {batch}
CONFIG = {config}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
{init}

    def forward(self, {arguments}):
{lines}


def make_inputs(batch):
    return ({made},)


def loss_fn(model, {all_arguments}):
{loss}


def build():
    torch.manual_seed({seed})
    model = Model()
{setup}
    return model


def trained(model):
    return [p for p in model.parameters() if p.requires_grad]


def two_groups(model):
    all = trained(model)
    return [{{"params": all[:1]}}, {{"params": all[1:], "lr": 0.01, "weight_decay": 0.2}}]


def make_optimizer(model):
    return {training}
'''


def _source(seed: int, draft: Draft, loss: model_losses.Loss, training: str, batch: int) -> str:
    def indented(lines: list[str], depth: int) -> str:
        return "\n".join("    " * depth + line for line in lines)

    first = next(iter(draft.inputs))
    at = 1 if draft.inputs[first].startswith("torch.randn(3, batch") else 0
    forward = [f"B = {first}.shape[{at}]", *draft.lines, "return h"]
    everything = draft.inputs | loss.inputs
    return _FRAME.format(
        seed=seed,
        batch=batch,
        config=draft.config,
        init=indented(draft.init, 2),
        arguments=", ".join(draft.inputs),
        lines=indented(forward, 2),
        made=", ".join(everything.values()),
        all_arguments=", ".join(everything),
        loss=indented([f"h = model({', '.join(draft.inputs)})", *loss.lines], 1),
        setup=indented(draft.setup, 1),
        training=training,
    )
