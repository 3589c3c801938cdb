"""Times the steps of a small model by heterog.time_ddp: FILE KIND (loss: step_fn returns the loss, update: it
does the whole step). Prints whether anything of model, optimizer and random numbers has changed, and what
is refused. Run by test_ddp_timings.py, under slowed.py."""

import sys

import torch
import torch.distributed as dist
from ranks_of_tests import refusals
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import heterog

out, kind = sys.argv[1:]
dist.init_process_group("gloo")
torch.manual_seed(3)
inner = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Dropout(), nn.Linear(5, 2))
model = DistributedDataParallel(inner)
optimizer = torch.optim.Adam(model.parameters())


def step(batch):
    loss = F.cross_entropy(model(batch[0]), batch[1])
    if kind == "loss":
        return loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def batch(samples):
    return torch.randn(samples, 3), torch.randint(0, 2, (samples,))


batches = {8: batch(8), 4: batch(4)} if dist.get_rank() == 0 else {6: batch(6)}
before = {name: value.clone() for name, value in model.state_dict().items()}
drawn = torch.get_rng_state()
said: list[str] = []
heterog.time_ddp(model, step, batches, out, rounds=3, say=said.append)
print("lines:", len(said))
same = all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
print("untouched:", same and not optimizer.state and torch.equal(drawn, torch.get_rng_state()))
if dist.get_rank() == 0:
    print(said[0])

found, says = refusals()
for name, given in (("none", {}), ("list", [batch(8)]), ("size", {"8": batch(8)})):
    with says(name):
        heterog.time_ddp(model, step, given, out)
with says("model"):
    heterog.time_ddp(inner, step, batches, out)
with says("nowhere"):
    heterog.time_ddp(model, step, batches, f"{out}/nowhere", say=None)
print("\n".join(f"{name}: {line}" for name, line in found.items()))
dist.destroy_process_group()
