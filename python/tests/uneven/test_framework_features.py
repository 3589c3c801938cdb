"""What frameworks do beside a plain step: cells of the table in docs/auto_shares.md."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
NEEDS = {"accelerate": "accelerate", "fabric": "lightning", "lightning": "lightning", "trainer": "accelerate",
         "timm": "timm"}  # fmt: skip
EXACT = 1e-12
IN_BFLOAT16 = 2e-2  # products of bfloat16 are added up in another order


@pytest.mark.slow
@pytest.mark.parametrize("framework", list(NEEDS))
def test_features_of_frameworks_train_as_one_process(framework, tmp_path):
    if importlib.util.find_spec(NEEDS[framework]) is None:
        pytest.skip(f"{NEEDS[framework]} is not installed (examples/uneven/requirements.txt)")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += [str(ROOT / "python" / "tests" / "framework_features.py"), framework]
    paths = [str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    off = {name: float(value) for name, value in re.findall(r"^off (\w+) (\S+)$", done.stdout, re.M)}
    assert list(off) == ["clipping", "amp", "norm", "resume", *["reload", "hand"] * (framework == "lightning")]
    for name, value in off.items():
        assert value <= (IN_BFLOAT16 if name == "amp" else EXACT), name
