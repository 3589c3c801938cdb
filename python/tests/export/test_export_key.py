"""What the key of an exported step sees: everything that could make another step, and little else."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import heterog
from heterog.export import step
from heterog.export.state import installed

HELPERS = """
import torch

def _inner(x):
    return x * 2.0

def twice(x):
    return _inner(x)

def activation(x):
    return torch.relu(x)

def never(x):
    return x * 7.0
"""
MODEL = """
import functools
import math
import torch
from torch import nn
from torch.nn import functional as F
import key_helpers as helpers
from key_helpers import activation

SCALE = 2.0
TABLE = {"a": 1.0}
KINDS = {"relu", "gelu", "tanh", "silu"}

def scaled(x):
    return x * SCALE

def decorated(function):
    @functools.wraps(function)
    def around(*given):
        return function(*given) * 1.25
    return around

@decorated
def shifted(x):
    return x + 0.5

class Rule(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        return gradient * 4.0

class Base(nn.Module):
    factor = 3.0

    def shared(self, x):
        return x + 1.0

    @property
    def half(self):
        return 0.5

class Net(Base):
    def __init__(self, width=4, rate=0.5):
        super().__init__()
        self.linear = nn.Linear(6, width)
        self.last = nn.Linear(width, width)
        self.drop = nn.Dropout(rate)
        self.gain = 1.5
        self.offsets = [torch.ones(width)]
        self.register_buffer("mask", torch.ones(width))

    def forward(self, x):
        from key_helpers import twice
        h = twice(scaled(self.linear(x)))
        h = activation(self.drop(h)) * self.gain + self.offsets[0]
        h = [Rule.apply(shifted(part)) for part in (h, h)][0] if "relu" in KINDS else h
        h = self.shared(self.last(h)) * self.mask * self.factor * math.pi
        return super().shared(h) * self.half

def loss_fn(model, x, y):
    return F.mse_loss(model(x), y) * TABLE["a"]

class Mine(torch.optim.SGD):
    rate = 1.0

    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.data.add_(p.grad, alpha=-0.1 * self.rate)

def train():
    print("a loop")
"""


class Aside(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class _Found(heterog.HeterogError):
    """Ends an export where its key is known."""


class Program:
    """A user's two files, and what they give to export_training_step."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.texts = {"key_helpers": HELPERS, "key_model": MODEL}
        self.options: dict = {}
        self.build = lambda found: found.Net()
        self.touch = lambda model: None
        self.loss_fn = lambda found: found.loss_fn
        self.optimizer = lambda found: lambda p: torch.optim.AdamW(p, lr=0.1)
        self.make_inputs = lambda batch: (torch.randn(batch, 6), torch.randn(batch, 4))

    def replace(self, old: str, new: str) -> None:
        assert any(old in text for text in self.texts.values()), old
        self.texts = {name: text.replace(old, new) for name, text in self.texts.items()}

    def arguments(self) -> dict:
        for name, text in self.texts.items():
            (self.folder / f"{name}.py").write_text(text)
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        found = importlib.import_module("key_model")
        model = self.build(found)
        self.touch(model)
        return {
            "model": model, "make_inputs": self.make_inputs, "loss_fn": self.loss_fn(found),
            "optimizer": self.optimizer(found), "name": "net",
        } | self.options  # fmt: skip


@pytest.fixture
def program(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path)
    return Program(tmp_path)


@pytest.fixture
def key_of(tmp_path, monkeypatch):
    """The key of an export; None where it is not kept."""
    keys: list = []

    def found(_folder, key, _make):
        keys.append(key)
        raise _Found("its key is known")

    def not_kept(_job):
        keys.append(None)
        raise _Found("it has none")

    monkeypatch.setattr(step, "stored_or_made", found)
    monkeypatch.setattr(step, "_made", not_kept)

    def key_of(program: Program) -> str | None:
        with pytest.raises(_Found):
            heterog.export_training_step(**program.arguments(), cache=tmp_path / "cache")
        return keys.pop()

    return key_of


# ---- what makes another key ----

TEXTS = {
    "a constant in forward": ("self.offsets[0]\n", "self.offsets[0] + 1e-3\n"),
    "another operator": ("torch.relu(x)", "torch.tanh(x)"),
    "a function of the file": ("x * SCALE", "x / SCALE"),
    "a helper's helper": ("x * 2.0", "x * 2.5"),
    "a global": ("SCALE = 2.0", "SCALE = 2.1"),
    "a value in a global dict": ('"a": 1.0', '"a": 1.5'),
    "a member of a global set": ('"silu"}', '"selu"}'),
    "a class attribute": ("factor = 3.0", "factor = 3.5"),
    "a method of a base class": ("x + 1.0", "x + 1.1"),
    "a property": ("return 0.5", "return 0.25"),
    "a decorator": ("* 1.25", "* 1.5"),
    "a decorated function": ("x + 0.5", "x + 0.75"),
    "a backward function": ("gradient * 4.0", "gradient * 5.0"),
    "a branch inside a comprehension": ("(h, h)]", "(h, 2 * h)]"),
    "the loss": ("F.mse_loss(model(x), y)", "F.l1_loss(model(x), y)"),
    "an argument's name": ("(model, x, y):\n    return F.mse_loss(model(x), y)",
                           "(model, x, z):\n    return F.mse_loss(model(x), z)"),
    "a default": ("rate=0.5", "rate=0.25"),
    "an attribute": ("self.gain = 1.5", "self.gain = 2"),
    "its type alone": ("self.gain = 1.5", "self.gain = True"),
    "values in a list": ("[torch.ones(width)]", "[torch.zeros(width)]"),
    "a module": ("nn.Dropout(rate)", "nn.Dropout1d(rate)"),
    "one module more": ("self.gain = 1.5", "self.gain = 1.5; self.more = nn.Identity()"),
    "a buffer's type": ("torch.ones(width))\n\n", "torch.ones(width, dtype=torch.float64))\n\n"),
    "a parameter's name": ("self.linear", "self.first"),
}  # fmt: skip
OPTIONS = [
    {"name": "other"}, {"batches": (2, 3, 32)}, {"batch": 32}, {"dropout": False},
    {"double": True}, {"autocast": "bfloat16"}, {"autocast": "float16"}, {"clip_norm": 1.0},
    {"batch_norm": "exact"}, {"attention": "math"}, {"momentum_input": True}, {"check": True},
    {"check": False}, {"loss_scaling": True}, {"loss_scaling": {"growth_interval": 7}},
]  # fmt: skip
TOUCHES = {
    "eval mode of one module": lambda m: m.drop.eval(),
    "a frozen parameter": lambda m: m.linear.bias.requires_grad_(False),
    "tied weights": lambda m: setattr(m.last, "weight", nn.Parameter(torch.ones(4, 4)))
    or setattr(m, "again", m.last.weight),
    "strides": lambda m: setattr(m.last, "weight", nn.Parameter(torch.ones(4, 4).t()[:, :].t().T)),
    "a hook of a module": lambda m: m.linear.register_forward_hook(lambda *_: None),
    "a hook of a parameter": lambda m: m.linear.weight.register_hook(lambda g: g * 2),
    "forward of one object": lambda m: setattr(m.last, "forward", lambda x: x),
    "a tensor as an attribute": lambda m: setattr(m, "plain", torch.ones(2)),
    "an object": lambda m: setattr(m, "config", argparse_like(1)),
    "another object": lambda m: setattr(m, "config", argparse_like(2)),
    "a function": lambda m: setattr(m, "act", F.gelu),
    "another function": lambda m: setattr(m, "act", F.silu),
    "a bound method": lambda m: setattr(m, "act", m.last.forward),
}
OPTIMIZERS = {
    "another one": lambda f: lambda p: torch.optim.Adam(p, lr=0.1),
    "its rate": lambda f: lambda p: torch.optim.AdamW(p, lr=0.2),
    "its betas": lambda f: lambda p: torch.optim.AdamW(p, lr=0.1, betas=(0.8, 0.999)),
    "a switch": lambda f: lambda p: torch.optim.AdamW(p, lr=0.1, amsgrad=True),
    "groups": lambda f: lambda p: torch.optim.AdamW([{"params": p[:1]}, {"params": p[1:]}], lr=0.1),
    "a group's setting": lambda f: lambda p: torch.optim.AdamW(
        [{"params": p[:1]}, {"params": p[1:], "weight_decay": 0.0}], lr=0.1
    ),
    "an own one": lambda f: lambda p: f.Mine(p, lr=0.1),
}
INPUTS = {
    "a shape": lambda b: (torch.randn(b, 1, 6), torch.randn(b, 1, 4)),
    "a type": lambda b: (torch.randn(b, 6), torch.randn(b, 4).double()),
    "a size at one batch": lambda b: (torch.randn(b + (b == 3), 6), torch.randn(b, 4)),
}


def times(factor):
    return lambda x, weight, bias=None: x @ weight.T * factor


def argparse_like(value):
    class Config:
        pass

    made = Config()
    made.value = value
    return made


def test_every_change_of_the_code_is_seen(program, key_of):
    before, texts = key_of(program), dict(program.texts)
    assert before is not None
    keys = {before: "nothing"}
    for what, (old, new) in TEXTS.items():
        program.texts = dict(texts)
        program.replace(old, new)
        key = key_of(program)
        assert key is not None and key not in keys, f"{what}, and {keys.get(key)}"
        keys[key] = what


def test_every_option_is_seen(program, key_of):
    keys = {key_of(program): {}}
    for options in OPTIONS:
        program.options = options
        key = key_of(program)
        assert key is not None and key not in keys, f"{options}, and {keys.get(key)}"
        keys[key] = options


@pytest.mark.parametrize("kind, cases", [("touch", TOUCHES), ("optimizer", OPTIMIZERS), ("make_inputs", INPUTS)])
def test_every_change_of_objects_is_seen(program, key_of, kind, cases):
    keys = {key_of(program): "nothing"}
    for what, case in cases.items():
        setattr(program, kind, case)
        key = key_of(program)
        assert key is not None and key not in keys, f"{what}, and {keys.get(key)}"
        keys[key] = what
        assert key_of(program) == key, what


MODULES_BY_NAME = {
    "in the table of modules": 'sys.modules["key_helpers"].FACTOR',
    "of its own": "sys.modules[__name__].OWN",
    "imported": 'importlib.import_module("key_helpers").FACTOR',
    "imported by a function": 'import_module("key_helpers").FACTOR',
}


@pytest.mark.parametrize("way", MODULES_BY_NAME)
def test_modules_that_are_reached_by_their_names_are_seen(program, key_of, way):
    program.replace("import math\n", "import importlib\nimport math\nimport sys\nfrom importlib import import_module\nOWN = 5.0\n")
    program.replace("def never", "FACTOR = 5.0\n\ndef never")
    program.replace("self.offsets[0]\n", f"self.offsets[0] * {MODULES_BY_NAME[way]}\n")
    first = key_of(program)
    assert first is not None and key_of(program) == first
    program.replace("= 5.0", "= 6.0")
    assert key_of(program) not in (None, first)


@pytest.mark.parametrize(
    "way", ["sys.modules['key_' + 'helpers' * self.gain].FACTOR", "import_module(self.name).FACTOR",
            "sys.modules.get('key_helpers').FACTOR"],
)  # fmt: skip
def test_modules_by_a_name_that_code_computes_are_not_known(program, key_of, way):
    program.replace("import math\n", "import math\nimport sys\nfrom importlib import import_module\n")
    program.replace("self.offsets[0]\n", f"self.offsets[0] * {way}\n")
    assert key_of(program) is None


def test_an_optimizer_of_ones_own_is_seen(program, key_of):
    program.optimizer = OPTIMIZERS["an own one"]
    keys = {key_of(program)}
    for old, new in (("rate = 1.0", "rate = 1.5"), ("-0.1 * self", "-0.2 * self")):
        program.replace(old, new)
        keys.add(key_of(program))
    assert len(keys) == 3


def test_what_was_put_into_a_package_is_seen(program, key_of, monkeypatch):
    keys = {key_of(program)}
    monkeypatch.setattr(F, "mse_loss", lambda x, y: (x - y).pow(2).mean())
    keys.add(key_of(program))
    monkeypatch.setattr(nn.Linear, "forward", lambda self, x: x @ self.weight.T)
    keys.add(key_of(program))
    assert len(keys) == 3 and None not in keys


def test_what_a_packages_own_function_finds_there_is_seen(program, key_of, monkeypatch):
    """nn.Linear calls F.linear, and models of transformers look into a table of functions."""
    keys = [key_of(program)]
    for factor in (2, 3):
        monkeypatch.setattr(F, "linear", times(factor))
        keys.append(key_of(program))
    monkeypatch.undo()
    assert len(set(keys)) == 3 and None not in keys


def test_a_function_in_a_packages_table_is_seen(program, key_of, monkeypatch):
    transformers = pytest.importorskip("transformers")
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as functions

    config = transformers.GPT2Config(n_layer=1, n_embd=8, n_head=1, vocab_size=9)
    program.build = lambda found: transformers.GPT2LMHeadModel(config)
    keys = [key_of(program)]
    for attention in (lambda *given: given[1], lambda *given: given[2]):
        monkeypatch.setitem(functions._global_mapping, "mine", attention)
        keys.append(key_of(program))
    assert len(set(keys)) == 3 and None not in keys


class Lazy(dict):
    """As transformers' tables do: makes an entry as it is asked for, and not every one can be made."""

    def __getitem__(self, key):
        raise ValueError(f"{key} is of another release")

    def items(self):
        return [(key, self[key]) for key in self]


def test_tables_that_make_their_entries_are_not_asked(program, key_of, monkeypatch):
    monkeypatch.setattr(F, "made_when_asked", Lazy(one=times(2)), raising=False)
    before = key_of(program)
    assert before is not None
    monkeypatch.setattr(F, "made_when_asked", Lazy(one=times(3)))
    assert key_of(program) not in (before, None)


@pytest.mark.parametrize("where, name", [(torch, "__version__"), (sys, "version")])
def test_versions_are_seen(program, key_of, monkeypatch, where, name):
    before = key_of(program)
    monkeypatch.setattr(where, name, "9.9.9")
    assert key_of(program) not in (before, None)


def test_the_exporters_own_sources_are_seen(program, key_of, monkeypatch):
    before = key_of(program)
    monkeypatch.setattr(installed, "_own_sources", lambda: "others")
    assert key_of(program) not in (before, None)


def test_settings_of_the_process_are_seen(program, key_of):
    keys = {key_of(program)}
    try:
        torch.set_default_dtype(torch.float64)
        program.touch = lambda m: m.float()
        keys.add(key_of(program))
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        keys.add(key_of(program))
    assert len(keys) == 3 and None not in keys


# ---- what does not ----


def test_nothing_else_is_seen(program, key_of):
    before = key_of(program)
    assert key_of(program) == before
    for old, new in (
        ("SCALE = 2.0", "# a comment\n\n\nSCALE = 2.0"),
        ("x * 7.0", "x * 8.0"),
        ('print("a loop")', 'print("another loop")'),
        ("alpha=-0.1", "alpha=-0.3"),  # of an optimizer that is not used
        ("self.linear = nn.Linear(6, width)", "self.linear = nn.Linear(2 * 3, width)"),
    ):
        program.replace(old, new)
        assert key_of(program) == before, new
    program.touch = lambda m: (m.linear.weight.data.fill_(3.0), m.mask.fill_(2.0))
    assert key_of(program) == before
    program.optimizer = lambda f: lambda p: torch.optim.AdamW(list(p), lr=0.1)
    assert key_of(program) == before


def test_optimizers_that_were_made_before_change_nothing(program, key_of):
    """PyTorch wraps step() of the class of which the first object is made."""
    program.optimizer = lambda f: lambda p: torch.optim.NAdam(p, lr=0.1)
    before = key_of(program)
    parameters = [torch.zeros(1, requires_grad=True)]

    class Mine(torch.optim.RMSprop):
        pass

    Mine(parameters)
    program.optimizer = lambda f: lambda p: torch.optim.RMSprop(p, lr=0.1)
    after = key_of(program)
    torch.optim.RMSprop(parameters)
    assert key_of(program) == after != before


def test_another_process_finds_the_same_key(program, key_of, tmp_path, monkeypatch):
    """With other hashes of strings, other addresses, other hooks before it."""
    # transformers leaves it there once it has built a model.
    monkeypatch.delattr(nn.Module, "smart_apply", raising=False)
    program.touch = TOUCHES["a hook of a module"]
    before = key_of(program)
    script = tmp_path / "other.py"
    script.write_text(
        "import sys, pathlib, torch\n"
        "import test_export_key as t\n"
        "from heterog.export import step\n"
        "torch.nn.Linear(1, 1).register_forward_hook(lambda *_: None)\n"
        "program = t.Program(pathlib.Path(sys.argv[1]))\n"
        "program.touch = t.TOUCHES['a hook of a module']\n"
        "def found(_folder, key, _make):\n"
        "    print(key)\n"
        "    raise t._Found('')\n"
        "step.stored_or_made = found\n"
        "try:\n"
        "    t.heterog.export_training_step(**program.arguments(), cache=sys.argv[1] + '/cache')\n"
        "except t._Found:\n"
        "    pass\n"
    )
    here = Path(__file__).parent
    paths = os.pathsep.join([str(here), str(here.parent), str(here.parents[1]), str(tmp_path)])
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        env=os.environ | {"PYTHONPATH": paths, "PYTHONHASHSEED": "7"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.split() == [before], done.stderr


# ---- what nobody can know ----

UNKNOWN = {
    "the environment": ("x * SCALE", "x * float(__import__('os').environ.get('A', 1))"),
    "eval": ("x * SCALE", "eval('x * SCALE')"),
    "globals": ("x * SCALE", "x * globals()['SCALE']"),
    "os.environ": ("SCALE = 2.0", "import os\nSCALE = 2.0\ndef more(): return os.environ['A']"),
}


@pytest.mark.parametrize("what", ["the environment", "eval", "globals"])
def test_code_that_reaches_what_no_name_says_is_not_kept(program, key_of, what, capsys):
    program.replace(*UNKNOWN[what])
    assert key_of(program) is None
    line = capsys.readouterr().err
    assert "heterog: the export of net is not kept for the next time: " in line
    assert "Net.forward" in line and line.count("\n") == 1


def test_what_reads_the_environment_is_not_kept(program, key_of):
    program.replace(*UNKNOWN["os.environ"])
    assert key_of(program) is not None  # nobody calls it
    program.replace("x * SCALE", "x * SCALE * float(more())")
    assert key_of(program) is None


def test_objects_that_say_nothing_of_themselves_are_not_kept(program, key_of, tmp_path):
    with open(tmp_path / "file", "w") as file:
        program.touch = lambda m: setattr(m, "log", file)
        assert key_of(program) is None
    program.touch = lambda m: setattr(m, "going", (x for x in ()))
    assert key_of(program) is None
    program.touch = lambda m: None
    with Aside():
        assert key_of(program) is None
    assert key_of(program) is not None
