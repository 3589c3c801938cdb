"""A script whose rank 1 ends while ranks measure: HOW (interrupt, kill, raise, none) FOLDER; run by
test_lost_rank.py as one of three ranks."""

import os
import signal
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import heterog

how, folder = sys.argv[1:]
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
signal.signal(signal.SIGINT, signal.default_int_handler)
dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
model = DistributedDataParallel(nn.Linear(4, 4))
loader = DataLoader(TensorDataset(torch.randn(90, 4)), batch_size=8)
steps = 0


def step(batch):
    global steps
    steps += 1
    if steps == 12:
        if how == "interrupt":  # as a terminal does: all ranks
            os.kill(os.getpid(), signal.SIGINT)
        elif rank == 1 and how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif rank == 1 and how == "raise":
            raise IndexError("row 7 is not there")
    return model(batch[0]).square().mean()


heterog.auto_shares(model, loader, step, rounds=2, say=None)
print("done")
