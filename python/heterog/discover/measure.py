"""Timed links: all-reduces and messages of torch.distributed, by gloo or NCCL.

Sizes are few: one that only latency costs, one that only bandwidth does.
"""

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta

from heterog.base.errors import HeterogError
from heterog.base.reading import parse_json
from heterog.base.values import as_object, required
from heterog.discover.cluster import SWITCH_SECONDS, Choices, cpu_devices
from heterog.discover.facts import Machine, Wire
from heterog.discover.hosts import Rank

_SMALL, _LARGE = 4, 64 << 20  # bytes
_TIMES = {_SMALL: 50, _LARGE: 5}
_PATIENCE = timedelta(seconds=300)


@dataclass
class Group:
    """What some ranks reached."""

    ranks: int
    bus_bandwidth: float  # bytes per second, 2(n−1)/n times the bytes over the time
    reduce_seconds: float  # of the small all-reduce
    message_seconds: float  # one way, of a small message between the first two


def measure(machines: list[Machine], choices: Choices, own: Rank | None, ranks: list[int] | None) -> None:
    """Puts what was measured into `machines`: this one, or with `own` those of all ranks, `ranks` on
    each."""
    cuda = all(machine.gpus for machine in machines)
    if own is None:
        count = len(machines[0].gpus) or cpu_devices(machines[0], choices.cpus)
        if count < 2:
            machines[0].remarks.append("not measured: it has one device")
            return
        groups = [_of_own_processes(count, cuda)]
    else:
        groups = _of_ranks(own, ranks or [], cuda)
    backend = "NCCL" if cuda else "gloo"
    for machine, group in zip(machines, groups):
        if group is not None:
            machine.measured_fabric = _wire(group, cuda, f"measured: {group.ranks} ranks by {backend}")
    across = groups[len(machines)] if len(groups) > len(machines) else None
    if across is not None:
        wire = _wire(across, cuda, f"measured: {across.ranks} machines by {backend}")
        wire.latency = max(0.0, (wire.latency + wire.launch - SWITCH_SECONDS) / 2)
        wire.launch = 0.0
        for machine in machines:
            machine.measured_nic = wire


def _wire(group: Group, cuda: bool, source: str) -> Wire:
    """Message: launch + latency. A small all-reduce of more than four ranks is a tree: launch and twice
    its depth of hops; of fewer, it does not tell the two apart."""
    if group.ranks > 4:
        hops = 2 * math.ceil(math.log2(group.ranks))
        latency = (group.reduce_seconds - group.message_seconds) / (hops - 1)
        latency = min(max(latency, 0.02 * group.message_seconds), group.message_seconds)
    else:
        latency = group.message_seconds * (0.13 if cuda else 1)  # of a GPU mostly launch, as links.json has it
    launch = group.message_seconds - latency
    what = f"{source}, all-reduce of {_LARGE >> 20} MiB, messages of {_SMALL} B"
    return Wire(group.bus_bandwidth, latency, launch, what)


# ---- ranks of our own, on one machine ----


def _of_own_processes(count: int, cuda: bool) -> Group:
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        command = [sys.executable, "-m", "heterog.discover.measure", store, str(count), str(int(cuda))]
        # As ranks of one machine talk: not over a card that the machine's name leads to.
        environment = {"GLOO_SOCKET_IFNAME": "lo"} | os.environ
        processes = [
            subprocess.Popen([*command, str(rank)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for rank in range(count)
        ]
        try:
            outputs = [process.communicate(timeout=2 * _PATIENCE.total_seconds()) for process in processes]
        except subprocess.TimeoutExpired as error:
            raise HeterogError("--measure: the ranks did not end", 4) from error
        finally:
            for process in processes:
                process.kill()
    for process, (_, said) in zip(processes, outputs):
        if process.returncode != 0:
            last = said.decode(errors="replace").strip().splitlines()[-1:] or ["no reason"]
            raise HeterogError(f"--measure: a rank ended with code {process.returncode}: {last[0]}", 4)
    said = as_object(parse_json(outputs[0][0], "--measure"), "--measure")
    return Group(**{name: required(said, name, "--measure") for name in Group.__annotations__})


def _main(store: str, count: str, cuda: str, rank: str) -> None:
    import torch.distributed as dist

    device = _device(int(rank), cuda == "1")
    dist.init_process_group(_backend(device), init_method=f"file://{store}", world_size=int(count),
                            rank=int(rank), timeout=_PATIENCE)  # fmt: skip
    group = _time(list(range(int(count))), int(rank), device, None)
    if rank == "0":
        print(json.dumps(vars(group)))
    dist.barrier()
    dist.destroy_process_group()


# ---- ranks that somebody started ----


def _of_ranks(own: Rank, ranks: list[int], cuda: bool) -> list[Group | None]:
    """A group of each machine, and one of the first ranks of all. Ranks of a machine follow each other."""
    import torch.distributed as dist

    device = _device(own.local_rank, cuda)
    ours = not dist.is_initialized()
    if ours:
        dist.init_process_group(_backend(device), rank=own.rank, world_size=own.world_size, timeout=_PATIENCE)
    firsts = [sum(ranks[:i]) for i in range(len(ranks))]
    members = [list(range(first, first + count)) for first, count in zip(firsts, ranks)]
    found: dict[int, Group] = {}
    for i, group in enumerate([*members, firsts] if len(ranks) > 1 else members):
        handle = dist.new_group(group)  # all ranks make it
        if len(group) > 1 and own.rank in group:
            found[i] = _time(group, own.rank, device, handle)
        dist.barrier()
    everybody: list[dict | None] = [None] * own.world_size
    dist.all_gather_object(everybody, {i: vars(group) for i, group in found.items()})
    if ours:
        dist.destroy_process_group()
    groups: dict[int, Group] = {}
    for said in everybody:
        groups |= {i: Group(**values) for i, values in (said or {}).items() if i not in groups}
    return [groups.get(i) for i in range(len(members) + (len(ranks) > 1))]


def _backend(device) -> str:
    return "nccl" if device.type == "cuda" else "gloo"


def _device(local_rank: int, cuda: bool):
    import torch

    if not cuda:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise HeterogError("--measure: nvidia-smi lists GPUs, but this PyTorch sees none", 4)
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def _time(members: list[int], rank: int, device, group) -> Group:
    import torch
    import torch.distributed as dist

    def median(call, size: int) -> float:
        buffer = torch.ones(size // 4, device=device)
        seconds = []
        for i in range(_TIMES[size] + 2):  # the first two warm up
            dist.barrier(group)
            _wait(device)
            start = time.perf_counter()
            call(buffer)
            _wait(device)
            if i >= 2:
                seconds.append(time.perf_counter() - start)
        return statistics.median(seconds)

    def there_and_back(buffer) -> None:
        if rank == members[0]:
            dist.send(buffer, members[1], group)
            dist.recv(buffer, members[1], group)
        elif rank == members[1]:
            dist.recv(buffer, members[0], group)
            dist.send(buffer, members[0], group)

    def reduce(buffer) -> None:
        dist.all_reduce(buffer, group=group)

    count = len(members)
    large = median(reduce, _LARGE)
    return Group(count, 2 * (count - 1) / count * _LARGE / large, median(reduce, _SMALL),
                 median(there_and_back, _SMALL) / 2)  # fmt: skip


def _wait(device) -> None:
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)


if __name__ == "__main__":
    _main(*sys.argv[1:])
