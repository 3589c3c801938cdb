"""Other machines: asked over ssh, or by the ranks of a job that runs there."""

import json
import os
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from heterog.discover.collect import PATIENCE, collect, identity
from heterog.discover.facts import Machine
from heterog.discover.machine import machine_of, read_text
from heterog.errors import HeterogError

_COLLECTOR = Path(__file__).parent / "collect.py"
_AT_ONCE = 16  # connections


def read_hostfile(path: str) -> list[str]:
    """`HOST slots=N`, one a line, as those of `heterog run`; `#` begins a comment."""
    lines = [line.partition("#")[0].split() for line in read_text(path).splitlines()]
    hosts = list(dict.fromkeys(line[0] for line in lines if line))
    if not hosts:
        raise HeterogError(f"{path}: no host; give one a line, as 'gpu1 slots=4'")
    return hosts


def ask_hosts(hosts: list[str], ssh: str) -> list[Machine]:
    """Each runs collect.py, which nobody installs: ssh passes it to its python3."""
    with ThreadPoolExecutor(min(_AT_ONCE, len(hosts))) as pool:
        return list(pool.map(lambda host: _ask(host, ssh), hosts))


def _ask(host: str, ssh: str) -> Machine:
    if host.startswith("-"):
        raise HeterogError(f"--hosts: {host!r} is no name of a host")
    command = [*shlex.split(ssh), host, "python3", "-"]
    try:
        with open(_COLLECTOR, "rb") as script:
            done = subprocess.run(
                command, stdin=script, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=2 * PATIENCE
            )
    except (OSError, subprocess.SubprocessError) as error:
        raise HeterogError(f"{host}: {shlex.join(command)}: {error}", 4) from error
    text = done.stdout.decode("utf-8", "replace")
    start = text.find('{"format"')  # what a shell's profile prints comes before
    if done.returncode != 0 or start < 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise HeterogError(f"{host}: {shlex.join(command)}: {said[-1] if said else 'it printed nothing'}", 4)
    try:
        machine = machine_of(json.loads(text[start:]), f"{host} over ssh")
    except json.JSONDecodeError as error:
        raise HeterogError(f"{host}: what it printed is no JSON: {error}", 4) from error
    machine.name = host.rpartition("@")[2]  # by which it can be reached
    return machine


# ---- ranks ----


@dataclass
class Rank:
    rank: int
    local_rank: int
    world_size: int


# As src/launch/rank_place.cc: starter by starter, rank, place on the host, number of ranks.
_STARTERS = (
    ("RANK", "LOCAL_RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"),
)


def own_rank() -> Rank | None:
    """None where this process is no rank of several."""
    for names in _STARTERS:
        if names[0] == "SLURM_PROCID" and "SLURM_STEP_ID" not in os.environ:
            continue
        values = [os.environ.get(name, "0" if name == "MPI_LOCALRANKID" else "") for name in names]
        if all(value.isdigit() for value in values):
            rank = Rank(*(int(value) for value in values))
            return rank if rank.world_size > 1 else None
    return None


@dataclass
class RankMachines:
    machines: list[Machine]  # in the order of their first ranks
    ranks: list[int]  # of each machine
    visible: list[str | None]  # CUDA_VISIBLE_DEVICES of the first rank of each


def ask_ranks(own: Rank) -> RankMachines:
    """Every rank calls it, and all get the same."""
    said = identity()
    if own.local_rank == 0:
        said = collect() | {"visible": os.environ.get("CUDA_VISIBLE_DEVICES")}
    everybody = exchange(json.dumps(said), own)
    by_host: dict[tuple[str, str], list[dict]] = {}
    for text in everybody:
        entry = json.loads(text)
        by_host.setdefault((entry["host"], entry["boot"]), []).append(entry)
    found = RankMachines([], [], [])
    for (host, _), entries in by_host.items():
        whole = next((entry for entry in entries if "format" in entry), None)
        if whole is None:
            raise HeterogError(f"{host}: none of its ranks is the first of its host", 1)
        found.machines.append(machine_of(whole, f"rank {everybody.index(json.dumps(whole))} on {host}"))
        found.ranks.append(len(entries))
        found.visible.append(whole.get("visible"))
    return found


_exchanges = 0  # of this process; all ranks count alike


def exchange(text: str, own: Rank) -> list[str]:
    """What each rank says, by rank: over the store of torch.distributed where it is in use, or of
    torchrun's agent, else over one of our own at the port after MASTER_PORT."""
    global _exchanges
    _exchanges += 1
    import torch.distributed as dist

    prefix = f"heterog/discover/{_exchanges}"
    timeout = timedelta(seconds=2 * PATIENCE)
    if dist.is_available() and dist.is_initialized():
        gathered: list[str | None] = [None] * own.world_size
        dist.all_gather_object(gathered, text)
        return [entry or "" for entry in gathered]
    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT", "")
    if not address or not port.isdigit():
        raise HeterogError("MASTER_ADDR, MASTER_PORT: not set; the ranks meet there (docs/running.md)")
    agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    try:
        base = dist.TCPStore(address, int(port) + (not agent), own.world_size, own.rank == 0 and not agent,
                             timeout=timeout, wait_for_workers=False)  # fmt: skip
        store = dist.PrefixStore(prefix, base)
        store.set(str(own.rank), text)
        everybody = [store.get(str(rank)).decode() for rank in range(own.world_size)]
        # Who serves the store goes last.
        if store.add("read", 1) == own.world_size:
            store.set("all read", "")
        if own.rank == 0:
            store.wait(["all read"], timeout)
    except RuntimeError as error:  # of c10d
        raise HeterogError(f"{address}:{port}: {str(error).splitlines()[0]}", 4) from error
    return everybody
