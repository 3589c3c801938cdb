"""Other machines: asked over ssh, or by the ranks of a job that runs there."""

import json
import os
import re
import selectors
import shlex
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from heterog.base.errors import HeterogError
from heterog.base.reading import MOST_OUTPUT_BYTES, parse_json, read_bytes
from heterog.base.values import as_object, as_string, host_name, shown, whole_in
from heterog.discover.collect import PATIENCE, collect, identity
from heterog.discover.facts import Machine
from heterog.discover.machine import machine_of

_COLLECTOR = Path(__file__).parent / "collect.py"
_AT_ONCE = 16  # connections
_MOST_RANKS = 1 << 20


_MOST_SLOTS = 1024


def read_hostfile(path: str) -> list[str]:
    """`HOST slots=N`, one a line, as src/launch/hostfile.cc reads it; `#` begins a comment."""
    slots: dict[str, int] = {}
    for number, line in enumerate(read_bytes(path, MOST_OUTPUT_BYTES).split(b"\n"), 1):
        # By spaces, tabs and the ends of lines alone.
        words = re.split(r"[ \t\r]+", line.partition(b"#")[0].decode("utf-8", "replace").strip(" \t\r"))
        if words == [""]:
            continue
        where = f"{path}:{number}"
        host = host_name(words[0], where)
        if len(words) > 2 or (len(words) == 2 and not words[1].startswith("slots=")):
            raise HeterogError(f"{where}: {shown(words[-1])} behind the host; a line is HOST slots=N")
        count = whole_in(words[1].removeprefix("slots="), _MOST_SLOTS) if len(words) == 2 else 1
        slots[host] = slots.get(host, 0) + (count or 0)
        if not count or slots[host] > _MOST_SLOTS:
            raise HeterogError(f"{where}: the slots of {host} are no number from 1 to {_MOST_SLOTS}")
    if not slots:
        raise HeterogError(f"{path}: names no host; a line is HOST slots=N")
    return list(slots)


def ask_hosts(hosts: list[str], ssh: str) -> list[Machine]:
    """Each runs collect.py, which nobody installs: ssh passes it to its python3."""
    with ThreadPoolExecutor(min(_AT_ONCE, len(hosts))) as pool:
        return list(pool.map(lambda host: _ask(host, ssh), hosts))


def _ask(host: str, ssh: str) -> Machine:
    command = [*_words(ssh), host_name(host, "--hosts"), "python3", "-"]
    try:
        code, printed, said = _output(command)
    except (OSError, subprocess.SubprocessError) as error:
        raise HeterogError(f"{host}: {shlex.join(command)}: {error}", 4) from error
    text = printed.decode("utf-8", "replace")
    start = text.find('{"format"')  # what a shell's profile prints comes before
    if code != 0 or start < 0:
        last = said.decode("utf-8", "replace").strip().splitlines()[-1:] or ["it printed nothing"]
        raise HeterogError(f"{host}: {shlex.join(command)}: {last[0][:400]}", 4)
    try:
        machine = machine_of(parse_json(text[start:], host), f"{host} over ssh")
    except HeterogError as error:
        raise HeterogError(f"{error} (what collect.py of heterog/discover printed there)", 4) from error
    machine.name = host.rpartition("@")[2]  # by which it can be reached
    return machine


def _words(ssh: str) -> list[str]:
    """Of a command to which a host is added. To ssh, what comes behind -- is no option of its own."""
    try:
        words = shlex.split(ssh)
    except ValueError as error:
        raise HeterogError(f"--ssh {shown(ssh)}: {error}") from error
    if not words:
        raise HeterogError("--ssh: is empty; it is a command such as ssh")
    return [*words, "--"] if os.path.basename(words[0]) == "ssh" else words


def _output(command: list[str]) -> tuple[int, bytes, bytes]:
    """Exit code, stdout and stderr of a command that reads collect.py, each within bounds."""
    end = time.monotonic() + 2 * PATIENCE
    with (
        open(_COLLECTOR, "rb") as script,
        subprocess.Popen(command, stdin=script, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process,
        selectors.DefaultSelector() as streams,
    ):
        printed: dict[object, bytearray] = {}
        for stream in (process.stdout, process.stderr):
            streams.register(stream, selectors.EVENT_READ)
            printed[stream] = bytearray()
        try:
            while streams.get_map():
                for key, _ in streams.select(max(0.0, end - time.monotonic())):
                    piece = os.read(key.fd, 1 << 16)
                    printed[key.fileobj] += piece
                    if not piece:
                        streams.unregister(key.fileobj)
                if max(map(len, printed.values())) > MOST_OUTPUT_BYTES:
                    raise subprocess.SubprocessError(f"it printed more than {MOST_OUTPUT_BYTES} bytes")
                if streams.get_map() and time.monotonic() > end:
                    raise subprocess.SubprocessError(f"it did not end within {2 * PATIENCE} s")
            code = process.wait(max(1.0, end - time.monotonic()))
        finally:
            process.kill()
    return code, bytes(printed[process.stdout]), bytes(printed[process.stderr])


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
        texts = [os.environ.get(name, "0" if name == "MPI_LOCALRANKID" else "") for name in names]
        values = [value for value in (whole_in(text, _MOST_RANKS) for text in texts) if value is not None]
        if len(values) == len(names):
            rank = Rank(*values)
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
    by_host: dict[tuple[str, str], list[tuple[int, dict]]] = {}
    for rank, text in enumerate(everybody):
        entry = as_object(parse_json(text, f"rank {rank}"), f"rank {rank}")
        host, boot = (as_string(entry.get(name), f"rank {rank}: {name}") for name in ("host", "boot"))
        by_host.setdefault((host, boot), []).append((rank, entry))
    found = RankMachines([], [], [])
    for (host, _), entries in by_host.items():
        rank, whole = next(((rank, entry) for rank, entry in entries if "format" in entry), (0, None))
        if whole is None:
            raise HeterogError(f"{shown(host)}: none of its ranks has LOCAL_RANK 0; one of each host has it")
        source = f"rank {rank} on {host}"
        visible = whole.get("visible")
        found.machines.append(machine_of(whole, source))
        found.ranks.append(len(entries))
        found.visible.append(None if visible is None else as_string(visible, f"{source}: visible"))
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
    if not address or not whole_in(port, 65535):
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
