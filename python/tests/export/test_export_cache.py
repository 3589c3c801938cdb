"""Steps that are taken from the cache are those that an export would make; nothing else is taken."""

import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
import torch
from rounds import thorough
from torch import nn

import heterog
from heterog.base import progress
from heterog.export import cache as export_cache, step

BATCH = 3


class Net(nn.Module):
    def __init__(self, factor=1.0):
        super().__init__()
        self.first = nn.Linear(6, 4)
        self.norm = nn.BatchNorm1d(4)
        self.unused = nn.Linear(2, 2)
        self.factor = factor
        self.register_buffer("row", torch.randn(4))
        self.plain = torch.randn(3, 4)

    def forward(self, x):
        h = self.norm(self.first(x)) * self.row + self.plain.sum(0)
        return h * torch.tensor([1.0, 2.0, 3.0, 4.0]) * self.factor


def loss_fn(model, x, y):
    return nn.functional.cross_entropy(model(x), y)


def make_inputs(batch):
    return torch.rand(batch, 6), torch.randint(0, 4, (batch,))


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=0.1)


class Counting(torch.optim.Optimizer):
    """Counts in its state as a Python number, and keeps what is no number."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1, "momentum": 0.9})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state |= {"count": 0, "kind": "mine", "sum": torch.zeros_like(p)}
                state["count"] += 1
                momentum = group["momentum"] if group["momentum"] != 0 else 0.5
                state["sum"].mul_(momentum).add_(p.grad)
                p.add_(state["sum"] / state["count"], alpha=-group["lr"])


@pytest.fixture
def made(monkeypatch):
    """The names of the steps that were exported, and not taken from the cache."""
    names = []
    plain = step._made

    def counted(job):
        names.append(job.name)
        return plain(job)

    monkeypatch.setattr(step, "_made", counted)
    return names


def export(cache, model=None, optimizer=adamw, **options):
    return heterog.export_training_step(
        Net() if model is None else model, make_inputs, loss_fn, optimizer, "net", cache=cache,
        **options,
    )  # fmt: skip


def check_equal(one: heterog.TrainingStep, other: heterog.TrainingStep) -> None:
    assert one.graph == other.graph
    # The order of fields is part of the file.
    assert repr(one.graph) == repr(other.graph)
    assert (one.checked, one.untrained) == (other.checked, other.untrained)
    assert one.constants.keys() == other.constants.keys()
    for name, value in one.constants.items():
        assert value.dtype == other.constants[name].dtype
        assert torch.equal(value, other.constants[name])
    first, second = one.update, other.update
    assert (first.kind, first.defaults, first.groups) == (second.kind, second.defaults, second.groups)
    assert first.forms == second.forms and list(first.forms) == list(second.forms)
    assert type(first.optimizer) is type(second.optimizer)
    assert (first.momentum is None) == (second.momentum is None)
    if first.momentum is not None:
        assert first.momentum.value == second.momentum.value
        assert first.momentum.answers == second.momentum.answers
        assert first.momentum.holds(0.5) == second.momentum.holds(0.5)
        assert first.momentum.holds(0.0) == second.momentum.holds(0.0)


CASES = {
    "AdamW": {},
    "an optimizer of one's own": {"optimizer": Counting},
    "a momentum that is asked for": {"optimizer": Counting, "momentum_input": True},
    "float16 and clipping": {"autocast": "float16", "clip_norm": 1.0},
    "double": {"double": True, "batches": (4, 5, 32)},
    "exact": {"batch_norm": "exact", "check": False},
}


@pytest.mark.parametrize("case", CASES)
def test_a_step_from_the_cache_is_the_one_that_is_exported(case, tmp_path, made):
    """Of another model of the same structure, in its own file."""
    torch.manual_seed(1)
    kept = export(tmp_path, **CASES[case])
    assert made == ["net"]
    model = Net()
    found = export(tmp_path, model, **CASES[case])
    assert made == ["net"]
    fresh = export(None, model, **CASES[case])
    assert made == ["net", "net"]
    check_equal(found, fresh)
    assert found.untrained == ["unused.weight", "unused.bias"]
    # Values of buffers are this model's.
    assert found.graph != kept.graph
    found.save(tmp_path / "found.json.gz")
    fresh.save(tmp_path / "fresh.json.gz")
    assert (tmp_path / "found.json.gz").read_bytes() == (tmp_path / "fresh.json.gz").read_bytes()


def test_large_constants_are_kept(tmp_path, made):
    table = torch.arange(70_000.0).sin()

    class Table(Net):
        def forward(self, x):
            return super().forward(x) + table.sum() + torch.zeros(3, dtype=torch.int64)[1]

    kept, found = export(tmp_path, Table()), export(tmp_path, Table())
    assert made == ["net"]
    assert any(value.numel() == 70_000 for value in found.constants.values())
    for name, value in kept.constants.items():
        assert torch.equal(value, found.constants[name])


def test_a_change_is_a_miss(tmp_path, made, monkeypatch):
    export(tmp_path)
    export(tmp_path, Net(2.0))
    assert len(made) == 2
    export(tmp_path, clip_norm=1.0)
    assert len(made) == 3
    monkeypatch.setattr(torch, "__version__", "9.9.9")
    export(tmp_path)
    assert len(made) == 4


def the_file(folder: Path) -> Path:
    (path,) = folder.glob("export-*.bin")
    return path


DAMAGE = ["cut", "a bit", "empty", "of another", "older", "no JSON", "a folder"]


@pytest.mark.parametrize("damage", thorough(DAMAGE, but={"a bit", "of another", "older", "a folder"}))
def test_a_damaged_file_is_replaced(damage, tmp_path, made):
    first = export(tmp_path)
    path = the_file(tmp_path)
    whole = path.read_bytes()
    if damage == "a folder":
        path.unlink()
        path.mkdir()
    elif damage == "of another":
        (tmp_path / "more").mkdir()
        export(tmp_path / "more", Net(2.0))
        path.write_bytes(the_file(tmp_path / "more").read_bytes())
    else:
        text = zlib.compress(b"{" * 8)
        digest = export_cache.hashlib.sha256(text).hexdigest()
        head = f"heterog-export 2 {digest} {len(text):012d}\n".encode()
        path.write_bytes({
            "cut": whole[:-7],
            "a bit": whole[:-9] + bytes([whole[-9] ^ 4]) + whole[-8:],
            "empty": b"",
            "older": whole.replace(b"heterog-export 2", b"heterog-export 1"),
            "no JSON": head + text,
        }[damage])  # fmt: skip
    made.clear()
    again = export(tmp_path)
    assert made == ["net"]
    assert again.graph["ops"] == first.graph["ops"]
    if damage != "a folder":
        made.clear()
        check_ops = export(tmp_path).graph["ops"]
        assert made == [] and check_ops == first.graph["ops"]


def test_what_does_not_come_back_as_it_was_is_not_kept(tmp_path, made, monkeypatch):
    plain = export_cache._unpack

    def loses(file, size, key):
        found = plain(file, size, key)
        found.graph["ops"].pop()
        return found

    monkeypatch.setattr(export_cache, "_unpack", loses)
    export(tmp_path)
    assert not list(tmp_path.glob("export-*.bin"))


def test_a_refused_model_is_not_kept(tmp_path, made):
    class Reads(Net):
        def forward(self, x):
            return super().forward(x) * x.sum().item()

    for _ in range(2):
        with pytest.raises(heterog.ExportError, match="reads the value"):
            export(tmp_path, Reads())
    assert len(made) == 2 and not list(tmp_path.glob("export-*.bin"))


def test_without_a_cache_nothing_is_kept(tmp_path, made, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    export(None), export(False)
    assert len(made) == 2 and not list(tmp_path.iterdir())
    export(True), export(True)
    assert len(made) == 3
    assert the_file(tmp_path / "heterog" / "runs").is_file()
    with pytest.raises(heterog.HeterogError, match="cache: 3; it is a folder, True or False"):
        export(3)


def test_processes_of_one_host_export_once(tmp_path):
    """All are there before any of them begins."""
    script = tmp_path / "rank.py"
    script.write_text(
        "import os, sys, time\n"
        "import test_export_cache as t\n"
        "folder, cache = sys.argv[1], sys.argv[2] or None\n"
        "plain = t.step._made\n"
        "def counted(job):\n"
        "    open(f'{folder}/made-{os.getpid()}', 'w').close()\n"
        "    return plain(job)\n"
        "t.step._made = counted\n"
        "open(f'{folder}/here-{os.getpid()}', 'w').close()\n"
        "while len([n for n in os.listdir(folder) if n.startswith('here')]) < 3:\n"
        "    time.sleep(0.01)\n"
        "t.export(cache)\n"
    )
    here = Path(__file__).parent
    for cache, expected in ((str(tmp_path / "cache"), 1), ("", 3)):
        folder = tmp_path / f"of {expected}"
        folder.mkdir()
        ranks = [
            subprocess.Popen(
                [sys.executable, str(script), str(folder), cache],
                env=os.environ | {"PYTHONPATH": f"{here}:{here.parent}:{here.parents[1]}", "OMP_NUM_THREADS": "1"},
            )
            for _ in range(3)
        ]
        assert [rank.wait() for rank in ranks] == [0, 0, 0]
        assert len(list(folder.glob("made-*"))) == expected


# ---- what is said meanwhile ----


class Watched:
    """A stderr that keeps what is written, and lets somebody wait for it."""

    def __init__(self):
        self.text = ""
        self.changed = progress.threading.Condition()

    def write(self, text):
        with self.changed:
            self.text += text
            self.changed.notify_all()

    def flush(self):
        pass

    def wait_for(self, text):
        with self.changed:
            self.changed.wait_for(lambda: text in self.text)


def test_a_long_export_says_what_it_is_at(monkeypatch):
    monkeypatch.delenv("HETEROG_QUIET", raising=False)
    monkeypatch.setattr(progress, "PATIENCE", 0.01)
    stderr = Watched()
    monkeypatch.setattr(sys, "stderr", stderr)

    def slow_inputs(batch):
        if batch in (2, 5):  # until it has been said
            stderr.wait_for("the export of net: compares" if batch == 5 else "the export of net: ")
        return make_inputs(batch)

    heterog.export_training_step(Net(), slow_inputs, loss_fn, adamw, "net", check=True)
    lines = stderr.text.splitlines()
    assert lines and all(line.startswith("heterog: the export of net: ") for line in lines)
    assert any("compares the step with PyTorch, " in line for line in lines)
    told = len(lines)
    assert not any(t.name == "heterog progress" for t in progress.threading.enumerate())
    assert len(stderr.text.splitlines()) == told


def test_quiet_says_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("HETEROG_QUIET", "1")
    monkeypatch.setattr(progress, "PATIENCE", 0.001)
    stderr = Watched()
    monkeypatch.setattr(sys, "stderr", stderr)
    model = Net()
    model.generator = (x for x in ())
    export(tmp_path, model)
    assert stderr.text == ""


def test_short_exports_say_nothing(monkeypatch):
    monkeypatch.delenv("HETEROG_QUIET", raising=False)
    monkeypatch.setattr(progress, "PATIENCE", 1e6)
    stderr = Watched()
    monkeypatch.setattr(sys, "stderr", stderr)
    export(None)
    assert stderr.text == ""
