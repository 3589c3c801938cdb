"""The command `heterog` of the wheel: starts the program beside the package's LibTorch.

Apart from the package, whose import loads all of PyTorch.
"""

import importlib.util
import os
import sys
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent / "heterog"


def program_environment() -> dict:
    """What the program needs around it: LibTorch of the package torch, and what the wheel brings."""
    torch = importlib.util.find_spec("torch")
    folders = [str(_PACKAGE / "lib")]
    if torch is not None and torch.submodule_search_locations:
        folders.append(os.path.join(torch.submodule_search_locations[0], "lib"))
    before = os.environ.get("LD_LIBRARY_PATH")
    return os.environ | {"LD_LIBRARY_PATH": ":".join(folders + [before] * bool(before))}


def main() -> None:
    program = _PACKAGE / "bin" / "heterog"
    if not program.is_file():
        sys.exit(f"heterog: error: {program} is not there: install the wheel of scripts/build_wheel.sh")
    # Verbs in Python (src/cli/python_verbs.h) run in this interpreter.
    own = {"HETEROG_PYTHON": os.environ.get("HETEROG_PYTHON") or sys.executable}
    os.execve(program, [str(program), *sys.argv[1:]], program_environment() | own)
