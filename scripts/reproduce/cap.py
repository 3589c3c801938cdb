"""Processes that get a part of a core, so that several workers fit on the cores of one machine."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
PERIOD = 10000  # µs


class Cap:
    """A control group whose processes get a part of a core, and get it before others do."""

    def __init__(self, name: str, part: float):
        old = GROUPS / "cpu"  # version 1 mounts each controller apart
        self.folder = (old if old.is_dir() else GROUPS) / f"heterog-{os.getpid()}-{name}"
        self.folder.mkdir()
        quota = round(part * PERIOD)
        if old.is_dir():
            self._write("cpu.cfs_period_us", PERIOD)
            self._write("cpu.cfs_quota_us", quota)
            self._write("cpu.shares", 262144)
        else:
            self._write("cpu.max", f"{quota} {PERIOD}")
            self._write("cpu.weight", 10000)

    def _write(self, name: str, value) -> None:
        (self.folder / name).write_text(str(value), encoding="utf-8")

    def add_self(self) -> None:
        self._write("cgroup.procs", os.getpid())

    def remove(self) -> None:
        self.folder.rmdir()


def run_capped(commands: list, caps: list[Cap], core_of: Callable[[int], int | None], environment) -> None:
    """Each command under its cap, on the core that is named for it; ends this program where one fails.
    The caps are removed."""

    def place(rank: int) -> None:
        caps[rank].add_self()
        core = core_of(rank)
        if core is not None:
            os.sched_setaffinity(0, {core})

    try:
        running = [
            subprocess.Popen([str(w) for w in command], env=environment, preexec_fn=lambda r=rank: place(r),
                             stdout=subprocess.DEVNULL)
            for rank, command in enumerate(commands)
        ]  # fmt: skip
        if any([process.wait() for process in running]):
            sys.exit("a rank ended with an error")
    finally:
        for cap in caps:
            cap.remove()
