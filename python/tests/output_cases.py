"""A training that gives more than its loss, by a runner and by plain PyTorch; as a program, one rank of
torchrun: PLANNER FOLDER."""

import copy
import os
import sys

import torch
from torch import nn
from torch.nn import functional as F

import heterog

BATCH = 12


def make_inputs(batch):
    return torch.randn(batch, 8), torch.randint(0, 4, (batch,))


def loss_fn(model, x, label):
    logits = model(x)
    loss = F.cross_entropy(logits, label)
    right = logits.argmax(1) == label
    return loss, {
        "logits": logits,
        "across": logits.t(),
        "flat": logits.reshape(-1),
        "accuracy": right.to(logits.dtype).mean(),
        "right": right.sum(),
        "which": right,
        "largest": logits.max(),
        "columns": logits.mean(0),
        "same": loss,
        "weight": model[0].weight,
    }


def make_model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)).double()


def make_optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)


def batches(samples):
    generator = torch.Generator().manual_seed(5)
    for count in samples:
        yield (
            torch.randn(count, 8, generator=generator, dtype=torch.float64),
            torch.randint(0, 4, (count,), generator=generator),
        )


def plain(samples, clip=None):
    """Outputs of each step of plain PyTorch, and those of evaluation at the end."""
    model = make_model()
    optimizer = make_optimizer(model)
    found = []
    for x, label in batches(samples):
        optimizer.zero_grad()
        loss, outputs = loss_fn(model, x, label)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), clip or float("inf"))
        found.append({name: value.detach().clone() for name, value in outputs.items()})
        found[-1]["gradient_norm"] = norm
        optimizer.step()
    return found, model


def measure(model, batch):
    assert not model.training and not torch.is_grad_enabled()
    x, label = batch
    logits = model(x)
    return {
        "right": (logits.argmax(1) == label).sum(),
        "loss": F.cross_entropy(logits, label, reduction="sum"),
        "samples": len(label),
    }


def by_runner(samples, devices, config, evaluated=()):
    model = make_model()
    config = {"batch": BATCH, "double": True, "gradient_norm": True, "cache": False} | config
    with heterog.get_runner(
        model, make_inputs, loss_fn, make_optimizer(model), devices, config
    ) as runner:
        found = []
        for batch in batches(samples):
            runner.step(batch)
            found.append(copy.deepcopy(runner.outputs()))
        sums = runner.evaluate(measure, batches(evaluated)) if evaluated else None
        assert model.training
        return found, sums


if __name__ == "__main__":
    planner, folder = sys.argv[1:]
    made = by_runner([BATCH, 7], "cpu:2", {"planner": planner}, [5, 3, 4])
    # One process gets nothing to evaluate.
    one = by_runner([BATCH], "cpu:2", {"planner": planner}, [6])
    torch.save((*made, one[1]), f"{folder}/rank{os.environ['RANK']}.pt")
