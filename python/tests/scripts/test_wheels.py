"""The wheel in Python alone, in an environment that has nothing else; for which Linux the other one is."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import torch

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "scripts"))
import manylinux  # noqa: E402

WAITS = """
#include <condition_variable>
#include <mutex>
#include <thread>
int main() {
  std::mutex mutex;
  std::condition_variable told;
  bool done = false;
  std::thread other([&] { std::lock_guard lock(mutex); done = true; told.notify_one(); });
  std::unique_lock lock(mutex);
  while (!done) told.wait(lock);
  lock.unlock();
  other.join();
}
"""


def test_python_alone_in_an_environment_of_its_own(tmp_path):
    environment = {"HETEROG_DIST": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(Path.home())}
    subprocess.run([ROOT / "scripts/build_wheel.sh", "--shares"], check=True, env=environment, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == "heterog_shares-0.1.0-py3-none-any.whl"
    held = zipfile.ZipFile(wheel).namelist()
    assert {Path(name).suffix for name in held if name.startswith("heterog")} <= {".py", ".json", ".typed", ".txt", ""}
    subprocess.run(["/usr/bin/python3", "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel], check=True)
    (packages,) = tmp_path.glob("venv/lib/python3*/site-packages")
    (packages / "torch.pth").write_text(str(Path(torch.__file__).parents[1]))
    row = subprocess.run([python, ROOT / "scripts/try_torch.py"], capture_output=True, text=True, cwd=tmp_path)
    said = re.sub(r"^torch \S+: ", "", row.stdout.strip())
    assert said == "shares ok, export ok, planner refused, library refused, runner refused", row.stdout + row.stderr


def test_a_newer_name_of_the_same_function_is_taken_back(tmp_path):
    source, program = tmp_path / "waits.cc", tmp_path / "waits"
    source.write_text(WAITS)
    subprocess.run(["g++", "-std=c++20", "-o", program, source], check=True)
    before = {need.name: need.symbols for need in manylinux.read_elf(program).needed}
    (waiting,) = manylinux.LOWERED["GLIBCXX_3.4.30"][1]
    assert before["GLIBCXX_3.4.30"] == {waiting}  # with GCC 12
    assert manylinux.too_new(program) == [] and manylinux.tag([program]) == manylinux.TAG
    manylinux.lower(program)
    after = [(need.name, need.symbols) for need in manylinux.read_elf(program).needed]
    assert ("GLIBCXX_3.4.11", {waiting}) in after and "GLIBCXX_3.4.30" not in dict(after)
    subprocess.run([program], check=True)


def test_what_needs_more_is_for_this_system_alone(tmp_path, monkeypatch, capsys):
    program = tmp_path / "waits"
    (tmp_path / "waits.cc").write_text(WAITS)
    subprocess.run(["g++", "-std=c++20", "-o", program, tmp_path / "waits.cc"], check=True)
    monkeypatch.setattr(manylinux, "LOWERED", {})
    (said,) = manylinux.too_new(program)
    assert said.startswith("GLIBCXX_3.4.30 (") and manylinux.tag([program]) == "linux_x86_64"
    assert "waits needs GLIBCXX_3.4.30" in capsys.readouterr().err


def test_the_job_of_slurm_starts_as_many_ranks_as_a_host_has(tmp_path):
    """On one host, whose srun and scontrol are stubs: what they set is Slurm's."""
    (tmp_path / "srun").write_text('#!/usr/bin/env bash\nshift\nSLURM_NODEID=0 exec "$@"\n')
    (tmp_path / "scontrol").write_text("#!/usr/bin/env bash\necho localhost\necho other\n")
    torchrun = f"#!/usr/bin/env bash\nexec {sys.executable} -m torch.distributed.run \"$@\"\n"
    (tmp_path / "torchrun").write_text(torchrun)
    for name in ("srun", "scontrol", "torchrun"):
        (tmp_path / name).chmod(0o755)
    script = tmp_path / "ranks.py"
    script.write_text(
        "import os, sys, torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "said = f\"{dist.get_rank()} of {dist.get_world_size()} {sys.argv[1:]} {os.environ['MASTER_ADDR']}\\n\"\n"
        "os.write(1, said.encode())\n"  # in one go: both ranks write to one pipe
        "dist.barrier()\ndist.destroy_process_group()\n"
    )
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_NODELIST": "localhost", "SLURM_JOB_ID": "73",
                   "SLURM_NNODES": "1", "RANKS_PER_NODE": "2", "HOME": str(tmp_path)}  # fmt: skip
    words = [ROOT / "examples/slurm/train.sbatch", script, "--epochs", "a b"]
    done = subprocess.run(["bash", *words], env=environment, capture_output=True, text=True)
    said = sorted(line for line in done.stdout.splitlines() if " of " in line)
    assert said == [f"{rank} of 2 ['--epochs', 'a b'] localhost" for rank in (0, 1)], done.stderr
