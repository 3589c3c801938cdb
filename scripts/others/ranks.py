"""Forks the ranks that check_others.py starts, off a process that has imported what they would each
import for many seconds.

A line of JSON on standard input is a list of ranks: each has words (of stage.py), a folder to run in,
variables of its environment, and a file for what it prints. The answer is a line with their exit codes.
"""

import contextlib
import importlib
import json
import os
import runpy
import signal
import sys
import time

PATIENCE = 600  # seconds of all ranks together
BESIDE_A_FAILED_ONE = 10
# Not `datasets`: each rank has a cache of its own, which is read from the environment at import.
MODULES = (
    "torch", "torch.distributed", "torch._dynamo", "torchvision.transforms.v2", "timm", "pandas", "pyarrow.csv",
    "transformers", "accelerate", "lightning.pytorch",
)  # fmt: skip


def become(rank: dict) -> None:
    os.chdir(rank["folder"])
    os.environ.update(rank["environment"])
    log = os.open(rank["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.argv = rank["words"]


def code_of(pid: int) -> int | None:
    """Exit code; None while it runs."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def wait_for(ranks: list[int]) -> list[int]:
    """Exit codes. Ranks that wait for one that has failed are ended, as all are in the end."""
    end = time.monotonic() + PATIENCE
    codes: dict[int, int] = {}
    while len(codes) < len(ranks):
        for pid in ranks:
            code = None if pid in codes else code_of(pid)
            if code is not None:
                codes[pid] = code
        if any(codes.values()):
            end = min(end, time.monotonic() + BESIDE_A_FAILED_ONE)
        if time.monotonic() > end:
            for pid in ranks:
                if pid not in codes:
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
    return [codes[pid] for pid in ranks]


def main() -> None:
    for name in MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for line in sys.stdin:
        ranks = []
        for rank in json.loads(line):
            ranks.append(os.fork())
            if ranks[-1] == 0:
                become(rank)
                runpy.run_path(rank["words"][0], run_name="__main__")
                return
        print(json.dumps(wait_for(ranks)), flush=True)


if __name__ == "__main__":
    main()
