"""Trains by scripts of other projects, on unequal shares and in one process, and compares.

    PYTHON scripts/check_others.py FOLDER [NAME …] [--keep FOLDER]

FOLDER holds checkouts, each named as its repository: examples (of pytorch), vision, pytorch-image-models,
transformers, pytorch-lightning. PYTHON is that of an environment with the frameworks whose versions are tried. What of a
script changes is in others/recipes.py; others/stage.py says what stands around it, so that two ranks on
CPUs and one process can be compared. Prints the versions of the packages and of the checkouts, and a row
for each script: lines changed for auto_shares, samples of each rank, and how far parameters end from those
of one process, as a part of the way that training took; of scripts that go on from a checkpoint, of a
second run from the first one's. Scripts that are not there, or whose packages are not, are left out by
name. Exit code 1: one failed or is too far off.
"""

import argparse
import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "others"))
import data  # noqa: E402
from recipes import RECIPES, Recipe  # noqa: E402

WORLD = 2
PACKAGES = ("torch", "torchvision", "timm", "transformers", "accelerate", "lightning", "datasets")


def versions(checkouts: Path) -> list[str]:
    """Of the packages that are installed, and of the checkouts: a tag or a commit, and its day."""
    found = []
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{package} {importlib.metadata.version(package)}")
    scripts = []
    for name in dict.fromkeys(recipe.script.split("/")[0] for recipe in RECIPES.values()):
        folder = checkouts / name
        if (folder / ".git").exists():  # else git would look above
            said = [git(folder, "describe", "--tags", "--always"), git(folder, "log", "-1", "--format=%cs")]
            scripts.append(f"{name} {said[0]} of {said[1]}")
        elif folder.is_dir():
            scripts.append(f"{name} of no known commit")
    return [f"packages: {', '.join(found)}", f"checkouts: {', '.join(scripts) or 'none'}"]


def git(folder: Path, *words: str) -> str:
    asked = subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, check=False)
    return asked.stdout.strip() or "?"


def edited(text: str, edits: list) -> str:
    lines = text.splitlines()
    for where, beginning, new in edits:
        found = [at for at, line in enumerate(lines) if line.lstrip().startswith(beginning)]
        if beginning == "import ":
            # Behind `from __future__`, outside of a text in quotes.
            found = [at for at in found if lines[at].startswith("import ")]
        if not found:
            raise LookupError(f"no line begins with {beginning!r}")
        at = found[0]
        indentation = re.match(r"\s*", lines[at])[0]
        end = at + 1 if where != "before" else at
        begin = at if where == "for" else end
        lines[begin:end] = [indentation + line for line in new]
    return "\n".join(lines) + "\n"


class Ranks:
    """others/ranks.py, which forks them."""

    def __init__(self):
        environment = os.environ | {
            "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
            "PYTHONPATH": f"{HERE.parent / 'python'}:{os.environ.get('PYTHONPATH', '')}",
        }  # fmt: skip
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([sys.executable, HERE / "others/ranks.py"], env=environment, **pipes)

    def run(self, ranks: list[dict]) -> list[int]:
        """Exit codes."""
        print(json.dumps(ranks), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"others/ranks.py ended with code {self.process.wait()}")
        return json.loads(answer)

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(self, *_) -> None:
        self.process.stdin.close()
        self.process.wait()


def start(ranks: Ranks, script: Path, recipe: Recipe, folder: Path, world: int, places: dict, more: str = "") -> dict:
    """Trains; what rank 0 has then (stage.py)."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    jobs = []
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "data").symlink_to(places["data"])  # which some look for beside their folder
    for rank in range(world):
        own = folder / f"rank{rank}"
        (own / "results").mkdir(parents=True)
        values = places | {"out": folder / "out", "all": recipe.batch * WORLD, "batch": recipe.batch * WORLD // world}
        words = [word.format(**values) for word in (recipe.arguments + more).split()]
        environment = {
            "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world,
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "HETEROG_STAGE_FLOATS": recipe.floats,
            "HETEROG_STAGE_GPUS": world if recipe.gpus is None else recipe.gpus,
            "HF_DATASETS_CACHE": own / "cache", "ACCELERATE_USE_CPU": "1",
        }  # fmt: skip
        command = [HERE / "others/stage.py", own / "result.pt", script, *words]
        jobs.append({
            "words": [str(word) for word in command], "folder": str(own), "log": str(own / "log.txt"),
            "environment": {name: str(value) for name, value in environment.items()},
        })  # fmt: skip
    codes = ranks.run(jobs)
    if any(codes):
        logs = [(folder / f"rank{rank}/log.txt").read_text() for rank, code in enumerate(codes) if code]
        raise RuntimeError(f"exit codes {codes}\n" + "\n".join(log[-1500:] for log in logs))
    return torch.load(folder / "rank0/result.pt")


def distance(ours: dict, theirs: dict) -> float:
    """Of the ends, as a part of the way; 0 where nothing moved in either."""
    assert len(ours["optimizers"]) == len(theirs["optimizers"]) > 0, "not as many optimizers in both"
    pairs = list(zip(ours["optimizers"], theirs["optimizers"], strict=True))
    flat = [
        [torch.cat([p.flatten().double() for p in tensors]) for tensors in (*mine, *others)] for mine, others in pairs
    ]
    began, ended, began_alone, ended_alone = (torch.cat([each[k] for each in flat]) for k in range(4))
    assert torch.equal(began, began_alone), "the two began at other parameters"
    way = (ended_alone - began_alone).norm().item()
    off = (ended - ended_alone).norm().item()
    return off / way if way else off


def try_script(ranks: Ranks, recipe: Recipe, checkouts: Path, folder: Path, places: dict) -> tuple[int, list, float]:
    """Lines changed, shares, distance."""
    scripts = {}
    for kind, edits in (("ours", recipe.parallel + recipe.ours), ("plain", recipe.parallel)):
        home = folder / kind / "source"
        shutil.copytree((checkouts / recipe.script).parent, home, ignore=shutil.ignore_patterns(".git"))
        scripts[kind] = home / Path(recipe.script).name
        file = home / Path(recipe.file or recipe.script).name
        file.write_text(edited(file.read_text(), edits))
    ours = start(ranks, scripts["ours"], recipe, folder / "ours", WORLD, places)
    if recipe.resumed:
        again = places | {"before": folder / "ours/out"}
        gone_on = start(ranks, scripts["ours"], recipe, folder / "again", WORLD, again, " " + recipe.resumed)
        # Some make their optimizer once they have read the checkpoint.
        began = [first for first, _ in ours["optimizers"]]
        ours["optimizers"] = [(first, end) for first, (_, end) in zip(began, gone_on["optimizers"], strict=True)]
    alone = start(ranks, scripts["plain" if recipe.alone == "as it is" else "ours"], recipe, folder / "plain", 1, places)
    changed = sum(len(new) for _, _, new in recipe.ours)
    return changed, ours["shares"], distance(ours, alone)


def missing(recipe: Recipe, checkouts: Path) -> str:
    if not (checkouts / recipe.script).is_file():
        return f"{recipe.script} is not there"
    lacking = [name for name in recipe.needs if importlib.util.find_spec(name) is None]
    return f"{', '.join(lacking)}: not installed" if lacking else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("names", nargs="*", help=", ".join(RECIPES))
    parser.add_argument("--keep", type=Path, help="work here, and keep it")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in RECIPES]:
        parser.error(f"no script {unknown[0]!r}; known: {', '.join(RECIPES)}")
    failed = False
    print(*versions(options.checkouts), "", sep="\n")
    print("| script | lines changed | samples of each rank | off |\n|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="heterog-others-") as made, Ranks() as ranks:
        here = (options.keep or Path(made)).resolve()
        data.make(here / "data")
        places = {"data": here / "data"}
        for name in options.names or RECIPES:
            recipe = dataclasses.replace(RECIPES[name])
            if why := missing(recipe, options.checkouts):
                print(f"{name}: left out: {why}", file=sys.stderr, flush=True)
                continue
            try:
                changed, shares, off = try_script(ranks, recipe, options.checkouts, here / re.sub(r"\W+", "-", name), places)
            except (AssertionError, LookupError, RuntimeError) as error:
                print(f"{name}: FAILED: {error}", file=sys.stderr, flush=True)
                failed = True
                continue
            failed |= not off <= recipe.most
            mark = "" if off <= recipe.most else " TOO FAR"
            said = "; ".join(" ".join(map(str, each)) for each in shares)
            print(f"| {name} | {changed} | {said} | {off:.0e}{mark} |", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
