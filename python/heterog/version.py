"""The version that exported files name as their producer, and the versions of PyTorch that the
library runs with.

Reads nothing, so that it can be run without the package (heterog_command.py).
"""

import re

VERSION = "0.1.0"
# From this one, up to below that one, as pyproject.toml says: the interface of LibTorch in C++ changes
# with every minor version (docs/dependencies.md).
TORCH = ((2, 11), (2, 13))


def wrong_torch(version: str) -> str:
    """Empty if the library can be loaded beside this version of PyTorch, else what is wrong."""
    found = re.match(r"(\d+)\.(\d+)", version)
    lowest, above = TORCH
    if found and lowest <= (int(found[1]), int(found[2])) < above:
        return ""
    versions = f"{lowest[0]}.{lowest[1]} to {above[0]}.{above[1] - 1}"
    return (
        f"torch {version} is installed, and the library of heterog {VERSION} runs with torch {versions}: "
        f"pip install 'torch>={lowest[0]}.{lowest[1]},<{above[0]}.{above[1]}'"
    )
