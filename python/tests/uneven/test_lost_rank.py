"""A rank that ends while all measure is named in one line by each of the others."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "measuring_ranks.py"
ROOT = Path(__file__).resolve().parents[3]
WORLD = 3


def run(how: str, folder: Path) -> list[tuple[int, list[str]]]:
    """Exit code and lines of standard error of each rank."""
    ranks = []
    for rank in range(WORLD):
        environment = os.environ | {"RANK": str(rank), "WORLD_SIZE": str(WORLD)}
        environment |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "python")}
        command = [sys.executable, str(SCRIPT), how, str(folder)]
        pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL, "text": True}
        ranks.append(subprocess.Popen(command, env=environment, **pipes))
    ended = []
    try:
        for rank in ranks:
            lines = rank.communicate(timeout=300)[1].splitlines()
            # Not PyTorch's own notes, of C++.
            ended.append((rank.returncode, [line for line in lines if line[:2] not in ("[W", "[E")]))
    finally:
        for rank in ranks:
            rank.kill()
    return ended


@pytest.mark.parametrize(
    ("how", "word"),
    [
        ("kill", "rank 1 ended while steps were measured"),
        ("raise", "rank 1 stopped: IndexError: row 7 is not there"),
    ],
)
def test_the_rank_that_ended_is_named_in_one_line(how, word, tmp_path):
    ended = run(how, tmp_path)
    for rank in (0, 2):
        code, lines = ended[rank]
        assert code == 1 and len(lines) == 1, lines
        assert lines[0].startswith(f"heterog: rank {rank}: {word}")
    code, lines = ended[1]
    if how == "kill":
        assert code == -signal.SIGKILL
    else:  # its own error, whole
        assert code == 1 and "Traceback" in lines[0] and lines[-1].endswith("IndexError: row 7 is not there")


def test_ctrl_c_says_one_line_in_all(tmp_path):
    ended = run("interrupt", tmp_path)
    lines = [line for _, said in ended for line in said]
    assert lines == ["heterog: rank 0: stopped by Ctrl-C while steps were measured"]
    assert all(code in (1, 130, -signal.SIGINT) for code, _ in ended)
