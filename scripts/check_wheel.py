"""Installs the wheels in an environment that has nothing else, and runs the pages there.

    .venv/bin/python scripts/check_wheel.py [--build build/release] [--keep FOLDER] [PAGE …]

The wheels are made of what a build folder holds (build/dev). pip installs them without an index, so that
it has to find each of their needs, and theirs, in the environment: those, and no package more, are
(hard) linked there from the one of scripts/setup.sh, which spares downloading PyTorch again. A need that
the wheels do not name is then missing, and one that cannot be met is refused.

Without pages: README.md and all pages of docs/ and its folders.
"""

import argparse
import importlib.metadata
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def build_wheels(folder: Path, build: str) -> list[Path]:
    """Of a build folder; without one (""), heterog-shares alone."""
    subprocess.run(
        ["scripts/build_wheel.sh", *([] if build else ["--shares"])],
        cwd=ROOT, check=True, stdout=subprocess.DEVNULL,
        env=os.environ | {"HETEROG_BUILD": build, "HETEROG_DIST": str(folder)},
    )  # fmt: skip
    return sorted(folder.glob("heterog*.whl"))


def needs_of(requirements: list[str]) -> dict[str, importlib.metadata.Distribution]:
    """The installed packages that these need, and those that they need, by name."""
    found: dict[str, importlib.metadata.Distribution] = {}
    wanted = list(requirements)
    while wanted:
        requirement = wanted.pop()
        if "extra ==" in requirement:
            continue
        name = re.match(r"[\w.-]+", requirement)[0].lower()
        if name in found:
            continue
        try:
            found[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # of another system; pip says so if it is of this one
        # An extra that was asked for may bring more packages, as torch's cuda-toolkit[cudart].
        extras = re.findall(r"\[(.*?)\]", requirement.split(";")[0])
        asked = {extra.strip() for group in extras for extra in group.split(",")}
        for each in found[name].requires or []:
            extra = re.search(r"extra == [\"'](.+?)[\"']", each)
            if extra is None or extra[1] in asked:
                wanted.append(each.split(";")[0])
    return found


def requirements_of(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as file:
        (name,) = (name for name in file.namelist() if name.endswith(".dist-info/METADATA"))
        return re.findall(r"^Requires-Dist: (.+)$", file.read(name).decode(), re.MULTILINE)


def place(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        return
    try:
        os.link(source, target)
    except OSError:  # another file system
        target.symlink_to(source)


def make_environment(folder: Path, wheels: list[Path]) -> Path:
    """Its Python."""
    subprocess.run(["/usr/bin/python3", "-m", "venv", folder], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    wanted = [requirement for wheel in wheels for requirement in requirements_of(wheel)]
    for distribution in needs_of(wanted).values():
        for file in distribution.files or []:
            source = Path(distribution.locate_file(file))
            if ".." not in file.parts and source.is_file():
                place(source, packages / file)
    python = folder / "bin/python"
    # torchrun is a script of torch's; it calls the Python beside it.
    script = folder / "bin/torchrun"
    script.write_text(f"#!{python}\nfrom torch.distributed.run import main\nmain()\n", encoding="utf-8")
    script.chmod(0o755)
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", *wheels],
        check=True,
    )
    return python


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pages", nargs="*", type=Path)
    parser.add_argument("--build", default="build/dev", help="the build folder that is packed")
    parser.add_argument("--keep", type=Path, help="make the environment here, and keep it")
    options, rest = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="heterog-wheel-") as folder:
        here = options.keep or Path(folder)
        python = make_environment(here / "venv", build_wheels(here, options.build))
        print(f"installed in {here / 'venv'}", flush=True)
        chosen = [page.resolve() for page in options.pages] or pages()
        return subprocess.run([python, ROOT / "scripts/run_pages.py", *chosen, *rest]).returncode


if __name__ == "__main__":
    sys.exit(main())
