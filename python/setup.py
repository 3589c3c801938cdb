"""Puts the library and the program of build/release into the wheel, with all that they read.

Without a build, the wheel holds the exporter alone. HETEROG_BUILD names other build folders.
"""

import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(os.environ.get("HETEROG_ROOT", Path(__file__).resolve().parent.parent))
# A build a version of PyTorch, separated by colons.
BUILDS = [ROOT / build for build in os.environ.get("HETEROG_BUILD", "build/release").split(":")]
BUILT = [build for build in BUILDS if (build / "lib/libheterog.so").is_file() and (build / "bin/heterog").is_file()]
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


def brought_libraries(program: Path) -> list[Path]:
    """Where the program finds them."""
    lines = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^\s*(\S+) => (\S+)", lines, re.MULTILINE)
    return [Path(path) for name, path in found if name.startswith(BROUGHT)]


class WithPrograms(build_py):
    def run(self):
        super().run()
        if not BUILT:
            print(f"warning: no build in {BUILDS}; this package can export, and run nothing")
            return
        folder = Path(self.build_lib) / "heterog"
        for build in BUILT:
            # base/version.py finds them by this name.
            own = folder / f"torch-{(build / 'torch-version').read_text().strip()}"
            program = build / "bin/heterog"
            for source in (build / "lib/libheterog.so", program, *brought_libraries(program)):
                self.put(source, own / source.name, strip=True)
        for pattern in SHIPPED:
            for source in sorted(ROOT.glob(pattern)):
                self.put(source, folder / source.relative_to(ROOT))

    def put(self, source: Path, target: Path, strip: bool = False) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
        if strip:
            subprocess.run(["strip", "--strip-unneeded", target], check=True)


platform = re.sub(r"[-.]", "_", sysconfig.get_platform())
setup(
    cmdclass={"build_py": WithPrograms},
    options={"bdist_wheel": {"plat_name": platform}} if BUILT else {},
)
