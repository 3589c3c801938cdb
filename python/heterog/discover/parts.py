"""One GPU as several devices: parts of its multiprocessors and of its memory."""

from heterog.base.errors import HeterogError
from heterog.base.values import shown, whole_in
from heterog.discover.fabric import Fabric
from heterog.discover.links import Link

# A copy between parts reads memory and writes it. The host launches it, and the threads of two
# ranks meet before.
_LATENCY = 20e-6


def parts_of(text: str) -> list[int]:
    """'64,32,24,8': the multiprocessors of each part."""
    parts = []
    for given in text.split(","):
        part = whole_in(given.strip(), 1 << 20)
        if not part:
            raise HeterogError(f"--split {shown(text)}: {shown(given)} is no number of multiprocessors, as in 64,32,24,8")
        parts.append(part)
    if len(parts) < 2:
        raise HeterogError(f"--split {shown(text)}: give two parts or more, as in 64,32,24,8")
    return parts


def split_gpu(entries: list[dict], parts: list[int], devices: dict[str, dict]) -> tuple[list[dict], Fabric]:
    """The devices of a machine with one GPU (its entry in the cluster file), as parts of that, and how they reach
    each other. Memory is dealt out by multiprocessors, all of it."""
    if len(entries) != 1 or entries[0].get("count", 1) != 1:
        count = sum(entry.get("count", 1) for entry in entries)
        raise HeterogError(f"--split: it is of a machine with one GPU; this one has {count}")
    model = entries[0]["model"]
    device = devices[model]
    whole = int(device.get("multiprocessors", 1))
    if sum(parts) > whole:
        raise HeterogError(f"--split: {sum(parts)} multiprocessors in all; a {model} has {whole}")
    memory = int(entries[0].get("memory_bytes", device["memory_bytes"]))
    split = [
        {"model": model, "part_of_gpu": {"multiprocessors": part, "memory_bytes": memory * part // sum(parts)}}
        for part in parts
    ]
    bandwidth = device["memory_bytes_per_second"] / 2
    source = "assumed: copies in the GPU's memory, which read it and write it, one after another"
    return split, Fabric("bus", Link("", source, bandwidth, _LATENCY))
