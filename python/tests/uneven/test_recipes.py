"""The recipes of examples/uneven: how many lines differ, and that they train as one process does."""

import difflib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
RECIPES = ROOT / "examples" / "uneven"
NEEDS = {
    "ddp": "torch",
    "accelerate": "accelerate",
    "fabric": "lightning",
    "lightning": "lightning",
    "trainer": "accelerate",  # Trainer needs it
    "timm": "timm",
}
CHANGED = {"ddp": 2, "accelerate": 4, "fabric": 2, "lightning": 4, "trainer": 2, "timm": 3}


def changed_lines(before: str, after: str) -> int:
    """A line that is another counts once; so does a new one, and one that is gone."""
    matcher = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    return sum(
        max(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in matcher.get_opcodes() if tag != "equal"
    )


def test_lines_are_counted():
    assert changed_lines("a\nb\nc", "a\nb\nc") == 0
    assert changed_lines("a\nb\nc", "a\nx\ny\nc") == 2
    assert changed_lines("a\nb\nc", "c") == 2


def test_every_recipe_is_here():
    assert {path.name for path in RECIPES.glob("*even.py")} == {
        f"{name}_{kind}.py" for name in NEEDS for kind in ("even", "uneven")
    }


@pytest.mark.parametrize("name", list(NEEDS))
def test_a_script_becomes_uneven_by_a_few_lines(name):
    even, uneven = (
        (RECIPES / f"{name}_{kind}.py").read_text(encoding="utf-8").replace("_uneven.py", "_even.py")
        for kind in ("even", "uneven")
    )
    assert changed_lines(even, uneven) == CHANGED[name] <= 4
    page = (ROOT / "docs" / "auto_shares.md").read_text(encoding="utf-8")
    for line in difflib.ndiff(even.splitlines(), uneven.splitlines()):
        if line.startswith(("+ ", "- ")):
            assert line[2:].strip() in page, "docs/auto_shares.md shows every changed line"


def run(script: Path, ranks: int, folder: Path, *arguments: str) -> str:
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command += [str(Path(__file__).parents[1] / "slowed.py"), str(script), *arguments]
    paths = [str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]  # where frameworks may be
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *command], env=environment, cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_trains_as_one_process(uneven: Path, alone: Path, folder: Path) -> None:
    two = run(uneven, 2, folder)
    taken = re.search(r"heterog: of (\d+) samples a step, rank 0 .*: (\d+)[^;]*; rank 1 .*: (\d+)", two)
    assert taken, two
    batch, first, second = map(int, taken.groups())
    assert first + second == batch and first > second
    # Without dropout and batch normalisation, one process on the whole batches ends the same.
    one = run(alone, 1, folder)
    found, expected = (float(re.search(r"^loss ([\d.]+)$", said, re.M)[1]) for said in (two, one))
    assert found == pytest.approx(expected, rel=2e-4)
    # What the Trainer reports is rank 0's estimate.
    reported = [float(x) for said in (two, one) for x in re.findall(r"'train_loss': ([\d.]+)", said)]
    assert not reported or reported[0] == pytest.approx(reported[1], rel=0.05)


def skip_without(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed (examples/uneven/requirements.txt)")


@pytest.mark.slow
@pytest.mark.parametrize("name", list(NEEDS))
def test_a_recipe_trains_as_one_process_does(name, tmp_path):
    skip_without(NEEDS[name])
    uneven = RECIPES / f"{name}_uneven.py"
    # In another order than the even script, unless a DistributedSampler has it.
    alone = RECIPES / f"{name}_even.py" if name in ("ddp", "timm") else uneven
    assert_trains_as_one_process(uneven, alone, tmp_path)


@pytest.mark.slow
def test_tokens_that_the_trainer_counts_count_once(tmp_path):
    skip_without("accelerate")
    script = Path(__file__).parents[1] / "language_trainer.py"
    assert_trains_as_one_process(script, script, tmp_path)


LOOPS = {"ddp": "torch", "accelerate": "accelerate", "accelerate-few": "accelerate",
         "fabric": "lightning", "lightning": "lightning", "timm": "torch"}  # fmt: skip
UNTOLD = {"accelerate-even": "accelerate", "resumed": "accelerate"}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*LOOPS, *UNTOLD])
def test_accumulated_batches_train_as_one_process(name, tmp_path):
    skip_without((LOOPS | UNTOLD)[name])
    said = run(Path(__file__).parents[1] / "framework_micro.py", 2, tmp_path, name)
    own = {
        "lightning": "46 in 8 micro-batches of 5 to 6",
        "accelerate-few": "3 in 3 micro-batches of 1",  # and one on the other rank
    }.get(name, "12 in 12 micro-batches of 1")
    assert (f"{own}; rank 1 " in said) == (name in LOOPS)
    assert float(re.search(r"^off (.*)$", said, re.M)[1]) <= 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tokens", "mean"])
def test_the_trainer_accumulates_micro_batches(kind, tmp_path):
    skip_without("accelerate")
    said = run(Path(__file__).parents[1] / "trainer_micro.py", 2, tmp_path, kind)
    assert "12 in 12 micro-batches of 1; rank 1 " in said
    assert "updates 10 tokens 1656" in said
    assert float(re.search(r"^off (.*)$", said, re.M)[1]) <= 1e-11
