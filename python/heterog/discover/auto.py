"""device_info="auto" of the client: the devices of this process, or of the ranks of its job."""

import os

from heterog.base.errors import HeterogError
from heterog.base.values import whole_in
from heterog.discover.bases import data_bases
from heterog.discover.cluster import Choices, cluster_text
from heterog.discover.collect import collect
from heterog.discover.facts import Machine
from heterog.discover.hosts import ask_ranks, own_rank
from heterog.discover.machine import machine_of


def auto_cluster(ranks: bool) -> str:
    """The text of a cluster file. `ranks`: where this process is one of several, each takes a device,
    and all call this and get the same."""
    own = own_rank() if ranks else None
    if own is None:
        machines = [_visible(machine_of(collect(), "this machine"), os.environ.get("CUDA_VISIBLE_DEVICES"))]
    else:
        found = ask_ranks(own)
        machines = [
            _of_ranks(machine, count, visible)
            for machine, count, visible in zip(found.machines, found.ranks, found.visible, strict=True)
        ]
    bases = data_bases(None)
    return cluster_text(machines, bases.devices, bases.bandwidths, Choices(name="auto")).text


def _visible(machine: Machine, wanted: str | None) -> Machine:
    """Of the GPUs, those that CUDA_VISIBLE_DEVICES numbers; names of theirs are left to the driver."""
    if wanted is None or not machine.gpus:
        return machine
    found = [whole_in(entry.strip(), len(machine.gpus) - 1) for entry in wanted.split(",") if entry.strip()]
    numbers = [number for number in found if number is not None]
    if len(numbers) < len(found):
        raise HeterogError(
            f"CUDA_VISIBLE_DEVICES: {wanted!r}: device_info 'auto' reads numbers of GPUs alone; describe them "
            "in a cluster file (heterog discover)"
        )
    return machine.with_gpus(numbers)


def _of_ranks(machine: Machine, count: int, visible: str | None) -> Machine:
    """Of those that it sees, rank i of a host takes GPU i; without GPUs all are processes on its CPU."""
    if not machine.gpus:
        machine.cpus = count
        return machine
    # A scheduler may show each rank its own GPU alone: then the host's first ones are theirs.
    if visible is not None and len(visible.split(",")) >= count:
        machine = _visible(machine, visible)
    if count > len(machine.gpus):
        raise HeterogError(f"{machine.name}: {count} ranks on {len(machine.gpus)} GPUs; start one a GPU")
    return machine.with_gpus(list(range(count)))
