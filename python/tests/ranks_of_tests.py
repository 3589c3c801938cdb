"""What tests of several ranks share: processes that leave what they found, and what was refused."""

import contextlib
import multiprocessing
import os
import runpy
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import torch.multiprocessing

from heterog.base.errors import HeterogError


# What ranks would import for seconds each.
PRELOADED = ["torch", "torch.utils.data"]


@dataclass
class Ended:
    """Of all ranks of a script: the highest exit code, and what they wrote, rank by rank."""

    code: int
    said: str


def _run_script(rank: int, world: int, port: int, folder: str, script: str, arguments: list) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world),
                   "LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}  # fmt: skip
    with open(f"{folder}/said{rank}", "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.argv = [script, *arguments]
    sys.path.insert(0, os.path.dirname(script))
    runpy.run_path(script, run_name="__main__")


def run_script(script, world: int, folder, *arguments: str) -> Ended:
    """Runs a script as so many ranks, which find the variables that torchrun would set. What it leaves
    to the end of the interpreter (atexit) is not done."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [
        context.Process(
            target=_run_script, args=(rank, world, port, str(folder), str(script), arguments)
        )
        for rank in range(world)
    ]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(900)  # of what never ends
    said = [Path(folder, f"said{rank}").read_text() for rank in range(world)]
    return Ended(max(abs(rank.exitcode) for rank in ranks), "".join(said))


def found_by(worker):
    """A fixture: what each rank of `worker(rank, world, folder)` left in `folder/rank.pt`, by the number
    of ranks; each number is started once."""

    @pytest.fixture(scope="module")
    def shared(tmp_path_factory):
        kept = {}

        def found(world):
            if world not in kept:
                folder = str(tmp_path_factory.mktemp(f"ranks{world}"))
                torch.multiprocessing.spawn(worker, (world, folder), nprocs=world)
                kept[world] = [
                    torch.load(f"{folder}/{rank}.pt", weights_only=False) for rank in range(world)
                ]
            return kept[world]

        return found

    return shared


def refusals():
    """A dict, and a context that notes in it what its body is refused with; "" if it is not."""
    said = {}

    @contextlib.contextmanager
    def says(name):
        try:
            yield
            said[name] = ""
        except (RuntimeError, ValueError, HeterogError) as error:
            said[name] = str(error)

    return said, says
