"""The command `heterog` of the wheel: starts the program beside the package's LibTorch.

Apart from the package, whose import loads all of PyTorch.
"""

import importlib.metadata
import importlib.util
import os
import runpy
import sys
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent / "heterog"
_VERSION = _PACKAGE / "version.py"
# Of the packages that torch for CUDA brings along; a build for CUDA calls them itself.
_NVIDIA = ("nvidia/nccl/lib", "nvidia/cu13/lib")


def wrong_torch() -> str:  # importlib.metadata reads the version without loading PyTorch
    """Empty if the program can be started beside the installed PyTorch, else what is wrong."""
    check = runpy.run_path(str(_VERSION))["wrong_torch"]
    try:
        return check(importlib.metadata.version("torch"))
    except importlib.metadata.PackageNotFoundError:
        return "torch is not installed: pip install torch"


def program_environment() -> dict:
    """What the program needs around it: LibTorch of the package torch, and what the wheel brings."""
    torch = importlib.util.find_spec("torch")
    folders = [str(_PACKAGE / "lib")]
    if torch is not None and torch.submodule_search_locations:
        root = Path(torch.submodule_search_locations[0])
        folders.append(str(root / "lib"))
        folders += [str(root.parent / name) for name in _NVIDIA if (root.parent / name).is_dir()]
    before = os.environ.get("LD_LIBRARY_PATH")
    return os.environ | {"LD_LIBRARY_PATH": ":".join(folders + [before] * bool(before))}


def main() -> None:
    program = _PACKAGE / "bin" / "heterog"
    if not program.is_file():
        sys.exit(f"heterog: error: {program} is not there: install the wheel of scripts/build_wheel.sh")
    if wrong := wrong_torch():
        print(f"heterog: error: {wrong}", file=sys.stderr)
        sys.exit(2)
    # Verbs in Python (src/cli/python_verbs.h) run in this interpreter.
    own = {"HETEROG_PYTHON": os.environ.get("HETEROG_PYTHON") or sys.executable}
    os.execve(program, [str(program), *sys.argv[1:]], program_environment() | own)
