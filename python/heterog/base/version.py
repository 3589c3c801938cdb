"""The version that exported files name as their producer, and which versions of PyTorch what runs
with.

Needs no package, so that it can be run without this one (heterog_command.py).
"""

import importlib.util
import re
from collections.abc import Iterable
from pathlib import Path

VERSION = "0.1.0"
# What is Python alone (auto_shares, weighted_gradients, discover) runs from the first on, the exporter
# from the second.
PYTHON_FROM = (2, 4)
EXPORTER_FROM = (2, 11)
# The packages of the library and the program. Where both are installed, that for GPUs is taken.
NATIVE = ("heterog_native_cu13", "heterog_native")
NO_LIBRARY = (
    "what plans and runs is in the wheel heterog, and heterog-shares alone is installed: pip install heterog "
    f"(or heterog-cu13 for GPUs), version {VERSION}"
)
# A library is for the minor version of PyTorch that it was built with: layouts of classes and tables of
# virtual functions change with each. Where what we call has stayed in its place, it is for another,
# too (docs/dependencies.md); on GPUs it has not ("2.11-cuda" has no row).
AS_WELL = {"2.11": ("2.12",)}


def minor_version(version: str) -> tuple[int, int]:
    """(2, 13) of "2.13.0+cpu"; (0, 0) of what is no version."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def native_packages() -> list[Path]:
    """The folders that the wheels heterog-cu13 and heterog have installed, wherever that is: the package
    heterog may lie in another environment below."""
    specs = [importlib.util.find_spec(name) for name in NATIVE]
    return [Path(spec.origin).resolve().parent for spec in specs if spec is not None and spec.origin]


def libraries(packages: Iterable[Path]) -> dict[str, Path]:
    """The folders of their libraries, by what they are for: "2.11", or "2.11-cuda". Of two for one
    version of PyTorch the first package's comes first."""
    found: dict[str, Path] = {}
    for package in packages:
        for folder in sorted(package.glob("torch-*")):
            found.setdefault(folder.name.removeprefix("torch-"), folder)
    return dict(sorted(found.items(), key=lambda item: minor_version(item[0])))


def planner(packages: Iterable[Path]) -> Path | None:
    """The folder of the program and the library that plan and explain beside any PyTorch, having
    nothing of it."""
    return next((package / "planner" for package in packages if (package / "planner").is_dir()), None)


def library_for(version: str, built: Iterable[str]) -> str:
    """Which of these libraries runs beside this version of PyTorch; empty if none does."""
    own = ".".join(map(str, minor_version(version)))
    as_well = ""
    for name in built:
        if name.removesuffix("-cuda") == own:
            return name
        if own in AS_WELL.get(name, ()):
            as_well = name
    return as_well


def wrong_torch(version: str, built: Iterable[str]) -> str:
    """Empty if one of these libraries can be loaded beside this version of PyTorch, else what is
    wrong."""
    built = list(built)
    if library_for(version, built):
        return ""
    if not built:
        return NO_LIBRARY
    served = [other for name in built for other in (name.removesuffix("-cuda"), *AS_WELL.get(name, ()))]
    wanted = f"pip install 'torch=={served[-1]}.*'"
    if minor_version(version) >= EXPORTER_FROM:
        wanted += f", or build the wheel with scripts/build_wheel.sh --torch {version.split('+')[0]}"
    return (
        f"torch {version} is installed, and this heterog has a library for torch {' and '.join(served)}, which runs "
        f"and verifies plans: {wanted}"
    )


def too_old(version: str) -> str:
    """Empty if the exporter runs with this version of PyTorch, else what is wrong."""
    if minor_version(version) >= EXPORTER_FROM:
        return ""
    lowest = ".".join(map(str, EXPORTER_FROM))
    return (
        f"torch {version} is installed; what exports, plans or runs needs torch {lowest} or newer "
        "(auto_shares does not)"
    )
