"""An optimizer's state dealt by memory over ranks of unequal shares, for test_zero.py."""

import copy
from dataclasses import dataclass

import torch
import torch.distributed as dist
from micro_cases import dataset, length, tokens
from ranks_of_tests import refusals
from sharded_cases import SHARES, Run, fixed, loader_of, shard
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import heterog

MEMORY = {2: [24e9, 48e9], 3: [24e9, 24e9, 48e9]}


@dataclass
class Case:
    """What is dealt by whom: `groups` of parameters, of which one does not decay."""

    by_memory: bool = True
    groups: bool = False
    views: bool = False
    parts: int = 1  # batches that the loop accumulates
    scaled: bool = False  # a GradScaler that skips a step


CASES = {
    "by memory": Case(),
    "groups": Case(groups=True),
    "views": Case(views=True),
    "accumulated": Case(parts=2),
    "equally": Case(by_memory=False),
    "scaled": Case(scaled=True),
}


def build() -> nn.Module:
    torch.manual_seed(1)
    layers = [nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 24), nn.Tanh(), nn.Linear(24, 40), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(40, 4)).double()


def groups_of(case: Case, model):
    parameters = list(model.parameters())
    if not case.groups:
        return parameters
    return [
        {"params": [p for p in parameters if p.dim() > 1]},
        {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0, "lr": 0.02},
    ]


def train(case: Case, model, optimizer, batches) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3, enabled=case.scaled)
    for number, batch in enumerate(batches):
        loss = tokens(model, batch) / case.parts
        scaler.scale(loss * torch.inf if case.scaled and number == 2 else loss).backward()
        if (number + 1) % case.parts == 0:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()


def alone(name: str, world: int):
    """Parameters, and the state of AdamW after the first epoch and after the second."""
    case, model, data = CASES[name], build(), dataset(world)
    optimizer = torch.optim.AdamW(groups_of(case, model), lr=0.05, weight_decay=0.1)
    states = []
    for epoch in range(2):
        order = torch.randperm(length(world), generator=torch.Generator().manual_seed(4 + epoch))
        train(case, model, optimizer, [data[rows] for rows in order.split(2 * world)])
        states.append(copy.deepcopy(optimizer.state_dict()))
    return [p.detach() for p in model.parameters()], states


def trained(name: str, rank: int, world: int) -> dict:
    """One epoch; then the checkpoint is read by an optimizer that is dealt by other memory."""
    case, said = CASES[name], []
    model = DistributedDataParallel(build())
    options = {"lr": 0.05, "weight_decay": 0.1, "parameters_as_bucket_view": case.views}

    def optimizer_of(memory):
        params = groups_of(case, model)
        if not case.by_memory:
            return ZeroRedundancyOptimizer(params, torch.optim.AdamW, **options)
        given = model if not case.groups else params
        return heterog.zero_by_memory(
            given, torch.optim.AdamW, memory=memory[rank], say=said.append, **options
        )

    optimizer = optimizer_of(MEMORY[world])
    with fixed(SHARES[world], None):
        loader = heterog.auto_shares(
            model, loader_of(world, rank, Run()), lambda b: tokens(model, b), say=None, rebalance=None
        )
    own, states = [], []
    for epoch in range(2):
        loader.set_epoch(epoch)
        train(case, model, optimizer, loader)
        held = sum(s["exp_avg"].numel() for s in optimizer.optim.state.values())
        own.append(held)
        optimizer.consolidate_state_dict(to=0)
        whole = [optimizer.state_dict() if rank == 0 else None]
        dist.broadcast_object_list(whole, 0)
        states.append(copy.deepcopy(whole[0]))
        if epoch == 0:
            optimizer = optimizer_of(MEMORY[world][::-1])
            optimizer.load_state_dict({**whole[0], "state": dict(whole[0]["state"])})
    parameters = [p.detach().clone() for p in model.parameters()]
    return {"parameters": parameters, "states": states, "own": own, "said": said}


def refused(rank: int, world: int) -> dict:
    said, says = refusals()
    adam = torch.optim.Adam
    with says("sharded"):
        heterog.zero_by_memory(shard(build(), Run(), world), adam)
    with says("overlap"):
        heterog.zero_by_memory(build(), adam, overlap_with_ddp=True)
    with says("memory"):
        heterog.zero_by_memory(build(), adam, memory=-1)
    with says("none left"):
        heterog.zero_by_memory(build(), adam, memory=0)
    with says("dtypes"):
        heterog.zero_by_memory(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()), adam)
    with says("nothing"):
        heterog.zero_by_memory(build().requires_grad_(False), adam)
    with says("whole step"):
        model = DistributedDataParallel(build())
        optimizer = heterog.zero_by_memory(model, adam, say=None)

        def step(batch):
            tokens(model, batch).backward()
            optimizer.step()

        heterog.auto_shares(model, loader_of(world, rank, Run()), step, say=None)
    return said


def measured(rank: int) -> dict:
    """By what the host has free: as much for each of its ranks."""
    said: list[str] = []
    optimizer = heterog.zero_by_memory(build(), torch.optim.AdamW, say=said.append)
    return {"memory": optimizer._memory, "elements": optimizer.elements_per_rank, "said": said}


def worker(rank: int, world: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world
    )
    results = {name: trained(name, rank, world) for name in CASES}
    results |= {"measured": measured(rank), "refused": refused(rank, world)}
    torch.save(results, f"{folder}/{rank}.pt")
    dist.destroy_process_group()
