"""One rank of a runner whose processes load their own samples alone: PLANNER ACCUMULATE FOLDER."""

import os
import sys

import torch
from runner_cases import BATCH, CASES
from torch.utils.data import DataLoader, Dataset

import heterog
from heterog.run import batches, own_samples

planner, accumulate, folder = sys.argv[1:]
case = CASES["mlp"]
rank = int(os.environ["RANK"])
spread = own_samples.spread


def poisoned(value, rows, axis, shape):
    """What is read but was not given shows in the loss."""
    whole = torch.full(shape, float("nan") if value.is_floating_point() else -1, dtype=value.dtype)
    given = spread(value, rows, axis, shape)
    for begin, end in rows:
        whole.narrow(axis, begin, end - begin).copy_(given.narrow(axis, begin, end - begin))
    return whole


class Samples(Dataset):
    """Notes which of them were loaded."""

    def __init__(self):
        torch.manual_seed(5)
        self.tensors = case.make_inputs(3 * BATCH + 5)
        self.loaded = []

    def __len__(self):
        return len(self.tensors[0])

    def __getitem__(self, index):
        self.loaded.append(index)
        return tuple(tensor[index] for tensor in self.tensors)


batches.spread = poisoned
torch.manual_seed(11)
model = case.model()
data = Samples()
settings = {"batch": BATCH, "double": True, "cache": f"{folder}/cache", "planner": planner,
            "accumulate": int(accumulate)}  # fmt: skip
with heterog.get_runner(
    model, case.make_inputs, case.loss_fn, case.optimizer(list(model.parameters())),
    "cpu:2", settings,
) as runner:  # fmt: skip
    sampler = heterog.ShareSampler(data, runner, shuffle=True, seed=3, drop_last=False)
    losses = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for number, batch in enumerate(DataLoader(data, batch_sampler=sampler)):
            losses.append(runner.step_local(batch, samples=sampler.samples(number)))
    found = {"losses": losses, "state": runner.state_dict(), "rows": runner.own_samples()}
    found["loaded"] = data.loaded
    torch.save(found, f"{folder}/rank{rank}.pt")
