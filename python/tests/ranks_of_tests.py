"""What tests of several ranks share: processes that leave what they found, and what was refused."""

import contextlib

import pytest
import torch
import torch.multiprocessing

from heterog.base.errors import HeterogError


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
