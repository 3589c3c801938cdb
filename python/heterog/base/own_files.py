"""Files that come with heterog: with its wheel, or with the checkout that this package lies in."""

import os
from pathlib import Path

from heterog.base.errors import HeterogError
from heterog.base.version import native_packages

# As Python names it in stack frames: links are not followed.
PACKAGE = Path(os.path.abspath(__file__)).parent.parent
_HOMES = (PACKAGE.resolve(), PACKAGE.resolve().parent.parent)


def shipped(path: Path) -> Path:
    """One of the project's clusters, by its path or its name, where no such file is here (as
    src/base/own_file.h)."""
    if path.is_absolute() or path.exists():
        return path
    named = Path("configs/clusters", f"{path}.json") if len(path.parts) == 1 else path
    for folder in _HOMES:
        if (folder / named).is_file():
            return folder / named
    return path


def shipped_graph(path: Path) -> Path:
    """One of the zoo, by its path or its name, where no such file is here."""
    if path.is_absolute() or path.exists():
        return path
    named = Path("models", f"{path}.json.gz") if len(path.parts) == 1 else path
    return next((folder / named for folder in (*_HOMES, *native_packages()) if (folder / named).is_file()), path)


def nearest(path: Path, name: str) -> Path | None:
    """The data base beside the file or above it, as the program looks for it: links are not followed."""
    for folder in Path(os.path.abspath(path)).parents:
        if (folder / name).is_file():
            return folder / name
    return None


def installed(name: str) -> Path:
    """A data base of the project."""
    for folder in _HOMES:
        if (folder / "configs" / name).is_file():
            return folder / "configs" / name
    raise HeterogError(f"{name} was not found in {_HOMES[0] / 'configs'}; install the wheel again")
