"""The command `heterog`: starts the program of the wheel heterog beside the LibTorch of the package torch,
or its planner, which does without.

Apart from the package, whose import loads all of PyTorch.
"""

import importlib.metadata
import importlib.util
import os
import runpy
import sys
from pathlib import Path

_VERSION = Path(__file__).resolve().parent / "heterog/base/version.py"
# Of the packages that torch for CUDA brings along; a build for CUDA calls them itself.
_NVIDIA = ("nvidia/nccl/lib", "nvidia/cu13/lib")
# The verbs in Python, which the program starts (src/cli/python_verbs.cc); they run without it, too.
_VERBS = {"discover": "heterog.discover", "export": "heterog.export", "import-profile": "heterog.import_profile",
          "import-timings": "heterog.import_timings"}  # fmt: skip

# The verbs that the planner alone has not (src/cli/torch/without_torch.cc).
_WITH_TORCH = ("train", "finetune", "profile", "verify", "run", "tune")


def too_old() -> bool:
    """Whether the exporter, too, does without the installed PyTorch."""
    try:
        return bool(runpy.run_path(str(_VERSION))["too_old"](importlib.metadata.version("torch")))
    except importlib.metadata.PackageNotFoundError:
        return True


def find_program() -> tuple[Path | None, str]:
    """The program for the installed PyTorch; without one, what is wrong. importlib.metadata reads
    the version without loading PyTorch."""
    version = runpy.run_path(str(_VERSION))
    built = version["libraries"](version["native_packages"]())
    try:
        torch = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None, "torch is not installed: pip install torch"
    if wrong := version["too_old"](torch) or version["wrong_torch"](torch, built):
        return None, wrong
    return built[version["library_for"](torch, built)] / "heterog", ""


def find_planner() -> Path | None:
    version = runpy.run_path(str(_VERSION))
    folder = version["planner"](version["native_packages"]())
    return folder and folder / "heterog"


def program_environment(folder: Path) -> dict:
    """What the program needs around it: LibTorch of the package torch, and what the wheel brings."""
    torch = importlib.util.find_spec("torch")
    folders = [str(folder)]
    if torch is not None and torch.submodule_search_locations:
        root = Path(torch.submodule_search_locations[0])
        folders.append(str(root / "lib"))
        folders += [str(root.parent / name) for name in _NVIDIA if (root.parent / name).is_dir()]
    before = os.environ.get("LD_LIBRARY_PATH")
    return os.environ | {"LD_LIBRARY_PATH": ":".join(folders + [before] * bool(before))}


def main() -> None:
    program, wrong = find_program()
    # Verbs in Python run in this interpreter, unless told otherwise.
    python = os.environ.get("HETEROG_PYTHON") or sys.executable
    if program is None:
        verb = sys.argv[1] if sys.argv[1:] else ""
        if verb == "discover" or (verb in _VERBS and not too_old()):
            words = [python, "-m", _VERBS[verb], *sys.argv[2:]]
            return os.execve(python, words, os.environ | {"HETEROG_PYTHON": python})
        program = find_planner()
        if program is None or verb in _WITH_TORCH:
            print(f"heterog: error: {wrong}", file=sys.stderr)
            sys.exit(2)
    own = {"HETEROG_PYTHON": python}
    return os.execve(program, [str(program), *sys.argv[1:]], program_environment(program.parent) | own)
