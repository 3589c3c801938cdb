"""Puts the library and the program of build/release into the wheel heterog, the planner's beside them, and
all that they read.

HETEROG_BUILD names other build folders, separated by colons; HETEROG_ROOT the checkout where this folder
is a copy; HETEROG_PACKAGE the package that they become (heterog_native).
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(os.environ.get("HETEROG_ROOT", Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(ROOT / "scripts"))
import manylinux  # noqa: E402

PACKAGE = os.environ.get("HETEROG_PACKAGE", "heterog_native")
# A build a version of PyTorch.
BUILDS = [ROOT / build for build in os.environ.get("HETEROG_BUILD", "build/release").split(":")]
# What the program and README's commands read.
SHIPPED = (
    "configs/*.json",
    "configs/clusters/*.json",
    "configs/train/*.json",
    "models/*.json.gz",
    "models/policies/zoo-small.ckpt",
)
# Of the system that builds, which another may lack.
BROUGHT = ("libfmt.", "libspdlog.")


def programs(build: Path, kind: str = "") -> list[Path]:
    """The library, the program, and the libraries that these find beside them. Kind "planner": those
    without LibTorch."""
    found = [build / f"lib/libheterog{kind and '_' + kind}.so", build / f"bin/heterog{kind and '-' + kind}"]
    for file in found:
        if not file.is_file():
            raise SystemExit(f"{file}: is not there; build it (scripts/build_release.sh), or set HETEROG_BUILD")
    lines = subprocess.run(["ldd", found[1]], capture_output=True, text=True, check=True).stdout
    needs = re.findall(r"^\s*(\S+) => (\S+)", lines, re.MULTILINE)
    return [*found, *(Path(path) for name, path in needs if name.startswith(BROUGHT))]


class WithPrograms(build_py):
    def run(self):
        super().run()
        folder = Path(self.build_lib) / PACKAGE
        for build in BUILDS:
            # base/version.py finds them by this name.
            self.put_programs(programs(build), folder / f"torch-{(build / 'torch-version').read_text().strip()}")
        self.put_programs(programs(BUILDS[0], "planner"), folder / "planner")
        for pattern in SHIPPED:
            for source in sorted(ROOT.glob(pattern)):
                self.put(source, folder / source.relative_to(ROOT))

    def put_programs(self, sources: list[Path], folder: Path) -> None:
        for source in sources:
            target = folder / re.sub("[-_]planner", "", source.name)
            self.put(source, target)
            subprocess.run(["strip", "--strip-unneeded", target], check=True)
            manylinux.lower(target)

    def put(self, source: Path, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


packed = [*programs(BUILDS[0], "planner"), *(file for build in BUILDS for file in programs(build))]
platform = manylinux.tag(packed)
setup(cmdclass={"build_py": WithPrograms}, options={"bdist_wheel": {"plat_name": platform}})
