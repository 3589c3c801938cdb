"""Puts the data bases of devices and links and the clusters into the wheel heterog-shares.

HETEROG_ROOT names the checkout where this folder is a copy.
"""

import os
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(os.environ.get("HETEROG_ROOT", Path(__file__).resolve().parent.parent))


class WithData(build_py):
    def run(self):
        super().run()
        for pattern in ("configs/*.json", "configs/clusters/*.json"):
            for source in sorted(ROOT.glob(pattern)):
                target = Path(self.build_lib) / "heterog" / source.relative_to(ROOT)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)


setup(cmdclass={"build_py": WithData})
