"""Reads what NCCL says: its topology (NCCL_TOPO_DUMP_FILE) and the tables of nccl-tests."""

import re
from dataclasses import dataclass
from xml.etree import ElementTree

from heterog.discover.facts import Gpu, Nic, Topology
from heterog.errors import HeterogError

# A transfer rate a lane, as the kernel words it, by generation of PCIe.
_GENERATIONS = {"2.5": 1, "5": 2, "5.0": 2, "8": 3, "8.0": 3, "16": 4, "16.0": 4, "32": 5, "32.0": 5,
                "64": 6, "64.0": 6}  # fmt: skip
_NVSWITCH = "0x068000"  # PCI class of what an NVLink leads to


@dataclass
class NcclTopology:
    gpus: list[Gpu]  # without names: NCCL knows numbers of chips alone
    topology: Topology
    nics: list[Nic]


@dataclass
class BusBandwidth:
    gpus: int
    hosts: int
    bytes_per_second: float  # the most of all sizes
    size: int  # at which it was reached


def read_nccl_topology(text: str, source: str = "NCCL topology") -> NcclTopology:
    start = text.find("<system")
    try:
        system = ElementTree.fromstring(text[max(start, 0) :].strip())
    except ElementTree.ParseError as error:
        raise HeterogError(
            f"{source}: no XML: {error}; give the file that NCCL_TOPO_DUMP_FILE names"
        ) from error
    places: dict[int, tuple[ElementTree.Element, list[ElementTree.Element]]] = {}
    nics: list[Nic] = []

    def walk(entry, above):
        for child in entry:
            if child.tag == "gpu":
                places[int(child.get("dev", len(places)))] = (child, above)
            elif child.tag == "net":
                nics.append(_nic(child))
            walk(child, [*above, child] if child.tag in ("cpu", "pci") else above)

    walk(system, [])
    if not places:
        raise HeterogError(f"{source}: it has no <gpu>; dump it in a job that uses the GPUs")
    devices = sorted(places)
    buses = {places[dev][1][-1].get("busid"): i for i, dev in enumerate(devices) if places[dev][1]}
    paths = [["X" if a == b else _path(places[a], places[b], buses, devices.index(b)) for b in devices]
             for a in devices]  # fmt: skip
    numa = [_numa(places[dev][1]) for dev in devices]
    return NcclTopology([_gpu(places[dev][1]) for dev in devices], Topology(paths, numa), nics)


def _nic(entry: ElementTree.Element) -> Nic:
    # Sockets have no guid of an RDMA card.
    rdma = (entry.get("guid") or "0x0") not in ("0x0", "0")
    return Nic(entry.get("name", "?"), float(entry.get("speed", 0)) / 1000, rdma)


def _gpu(above: list[ElementTree.Element]) -> Gpu:
    """The narrowest and slowest of the links from the card up to its processor."""
    links = [entry for entry in above if entry.tag == "pci" and entry.get("link_speed")]
    generations = [_GENERATIONS.get(entry.get("link_speed", "").split(" ")[0], 0) for entry in links]
    widths = [int(entry.get("link_width", 0)) for entry in links]
    return Gpu("", 0, min((g for g in generations if g), default=0), min((w for w in widths if w), default=0))


def _numa(above: list[ElementTree.Element]) -> int | None:
    node = int(above[0].get("numaid", -1)) if above and above[0].tag == "cpu" else -1
    return node if node >= 0 else None


def _path(a, b, buses: dict, index_of_b: int) -> str:
    (gpu, above), (other, above_other) = a, b
    links = gpu.findall("nvlink")
    direct = sum(int(link.get("count", 1)) for link in links if buses.get(link.get("target")) == index_of_b)
    switched = sum(int(link.get("count", 1)) for link in links if link.get("tclass") == _NVSWITCH)
    through = sum(int(link.get("count", 1)) for link in other.findall("nvlink")
                  if link.get("tclass") == _NVSWITCH)  # fmt: skip
    if direct or min(switched, through):
        return f"NV{direct or min(switched, through)}"
    if not above or not above_other or above[0] is not above_other[0]:
        return "SYS"
    shared = sum(x is y for x, y in zip(above, above_other))
    if shared == 1:
        return "PHB"  # the processor alone
    return "PIX" if len(above) - shared <= 1 and len(above_other) - shared <= 1 else "PXB"


_NUMBER = r"[\d.]+(?:e[+-]?\d+)?"


def read_nccl_tests(text: str, source: str = "nccl-tests") -> BusBandwidth:
    """The table of all_reduce_perf. What mpirun puts before lines, and pasting takes from them, does
    not matter: columns are found by the header's words."""
    lines = [re.sub(r"^\s*\[[\d,]+\]\s*(<std\w+>:)?", "", line) for line in text.splitlines()]
    _refuse_other_collectives(text, source)
    header = next((line.lstrip("# ").split() for line in lines if "algbw" in line and "busbw" in line), None)
    if header is None or "size" not in header:
        raise HeterogError(f"{source}: no header 'size … algbw busbw'; give what all_reduce_perf prints")
    size, time, busbw = (header.index(word) for word in ("size", "time", "busbw"))
    rows = []
    for line in lines:
        words = line.split()
        if len(words) <= busbw or not words[size].isdigit() or not re.fullmatch(_NUMBER, words[time]):
            continue
        if re.fullmatch(_NUMBER, words[busbw]):
            # Out of place, and in place where the row goes on.
            again = busbw + (busbw - time) + 2
            both = [float(words[busbw])] + [float(words[again])] * (
                len(words) > again and re.fullmatch(_NUMBER, words[again]) is not None
            )
            rows.append((int(words[size]), float(words[time]) * 1e-6, max(both) * 1e9))
    if not rows or not any(row[2] for row in rows):
        raise HeterogError(f"{source}: no row with a bus bandwidth above 0; run it with large sizes, -e 256M")
    best = max(rows, key=lambda row: row[2])
    ranks = re.findall(r"Rank\s+\d+\s.*?\bon\s+(\S+)\s+device", text)
    return BusBandwidth(len(ranks), len(set(ranks)), best[2], best[0])


def _refuse_other_collectives(text: str, source: str) -> None:
    named = re.search(r"\b(all_gather|reduce_scatter|broadcast|alltoall|sendrecv|reduce|gather|scatter"
                      r"|hypercube)_perf\b", text)  # fmt: skip
    if named and "all_reduce_perf" not in text:
        raise HeterogError(f"{source}: it is of {named.group(0)}; give a run of all_reduce_perf")
