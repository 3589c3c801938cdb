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
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
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


def wait_for(ranks: list[subprocess.Popen]) -> list[int]:
    """Exit codes. Ranks that wait for one that has failed are ended, as all are after ten minutes."""
    end = time.monotonic() + 600
    while any(rank.poll() is None for rank in ranks):
        if any(rank.poll() for rank in ranks):
            end = min(end, time.monotonic() + 10)
        if time.monotonic() > end:
            for rank in ranks:
                rank.kill()
        time.sleep(0.1)
    return [rank.returncode for rank in ranks]


def start(script: Path, recipe: Recipe, folder: Path, world: int, places: dict, more: str = "") -> dict:
    """Trains; what rank 0 has then (stage.py)."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    ranks = []
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "data").symlink_to(places["data"])  # which some look for beside their folder
    for rank in range(world):
        own = folder / f"rank{rank}"
        (own / "results").mkdir(parents=True)
        values = places | {"out": folder / "out", "all": recipe.batch * WORLD, "batch": recipe.batch * WORLD // world}
        words = [word.format(**values) for word in (recipe.arguments + more).split()]
        environment = os.environ | {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "HETEROG_STAGE_FLOATS": recipe.floats, "HETEROG_STAGE_GPUS": str(world if recipe.gpus is None else recipe.gpus),
            "HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(own / "cache"), "ACCELERATE_USE_CPU": "1",
            "PYTHONPATH": f"{HERE.parent / 'python'}:{os.environ.get('PYTHONPATH', '')}", "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        command = [sys.executable, HERE / "others/stage.py", own / "result.pt", script, *words]
        with open(own / "log.txt", "w") as log:
            ranks.append(subprocess.Popen(command, cwd=own, env=environment, stdout=log, stderr=log))
    codes = wait_for(ranks)
    if any(codes):
        logs = [(folder / f"rank{rank}/log.txt").read_text() for rank, code in enumerate(codes) if code]
        raise RuntimeError("\n".join(log[-1500:] for log in logs))
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


def try_script(recipe: Recipe, checkouts: Path, folder: Path, places: dict) -> tuple[int, list, float]:
    """Lines changed, shares, distance."""
    scripts = {}
    for kind, edits in (("ours", recipe.parallel + recipe.ours), ("plain", recipe.parallel)):
        home = folder / kind / "source"
        shutil.copytree((checkouts / recipe.script).parent, home, ignore=shutil.ignore_patterns(".git"))
        scripts[kind] = home / Path(recipe.script).name
        file = home / Path(recipe.file or recipe.script).name
        file.write_text(edited(file.read_text(), edits))
    ours = start(scripts["ours"], recipe, folder / "ours", WORLD, places)
    if recipe.resumed:
        again = places | {"before": folder / "ours/out"}
        gone_on = start(scripts["ours"], recipe, folder / "again", WORLD, again, " " + recipe.resumed)
        # Some make their optimizer once they have read the checkpoint.
        began = [first for first, _ in ours["optimizers"]]
        ours["optimizers"] = [(first, end) for first, (_, end) in zip(began, gone_on["optimizers"], strict=True)]
    alone = start(scripts["plain" if recipe.alone == "as it is" else "ours"], recipe, folder / "plain", 1, places)
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
    with tempfile.TemporaryDirectory(prefix="heterog-others-") as made:
        here = (options.keep or Path(made)).resolve()
        data.make(here / "data")
        places = {"data": here / "data"}
        for name in options.names or RECIPES:
            recipe = dataclasses.replace(RECIPES[name])
            if why := missing(recipe, options.checkouts):
                print(f"{name}: left out: {why}", file=sys.stderr, flush=True)
                continue
            try:
                changed, shares, off = try_script(recipe, options.checkouts, here / re.sub(r"\W+", "-", name), places)
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
