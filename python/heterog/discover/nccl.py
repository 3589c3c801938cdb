"""Reads what NCCL says: its topology (NCCL_TOPO_DUMP_FILE) and the tables of nccl-tests."""

import re
from dataclasses import dataclass
from xml.etree import ElementTree

from heterog.base.errors import HeterogError
from heterog.base.reading import lines_of, parse_xml
from heterog.base.values import number_in, shown, whole_in
from heterog.discover.facts import Gpu, Nic, Topology
from heterog.discover.network import gigabits

# A transfer rate a lane, as the kernel words it, by generation of PCIe.
_GENERATIONS = {"2.5": 1, "5": 2, "5.0": 2, "8": 3, "8.0": 3, "16": 4, "16.0": 4, "32": 5, "32.0": 5,
                "64": 6, "64.0": 6}  # fmt: skip
_MOST = 999_999  # of numbers, lanes and links
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
    system = parse_xml(text, source, "system", "NCCL writes to the file that NCCL_TOPO_DUMP_FILE names")
    places: dict[int, tuple[ElementTree.Element, list[ElementTree.Element]]] = {}
    nics: list[Nic] = []

    def walk(entry, above):
        for child in entry:
            if child.tag == "gpu":
                places[_count(child, "dev", source)] = (child, above)
            elif child.tag == "net" and (nic := _nic(child)) is not None:
                nics.append(nic)
            walk(child, [*above, child] if child.tag in ("cpu", "pci") else above)

    walk(system, [])
    if not places:
        raise HeterogError(f"{source}: it has no <gpu>; dump it in a job that uses the GPUs")
    devices = sorted(places)
    buses = {places[dev][1][-1].get("busid"): i for i, dev in enumerate(devices) if places[dev][1]}
    links = {dev: _links(places[dev][0], buses, source) for dev in devices}
    paths = [["X" if a == b else _path(places[a][1], places[b][1], links[a].get(j, 0), min(links[a][None], links[b][None]))
              for j, b in enumerate(devices)] for a in devices]  # fmt: skip
    numa = [_numa(places[dev][1]) for dev in devices]
    return NcclTopology([_gpu(places[dev][1], source) for dev in devices], Topology(paths, numa), nics)


def _nic(entry: ElementTree.Element) -> Nic | None:
    """None where it states no rate, in Mb/s."""
    # Sockets have no guid of an RDMA card.
    rdma = (entry.get("guid") or "0x0") not in ("0x0", "0")
    gbits = gigabits(entry.get("speed", ""), 1000)
    return Nic(entry.get("name", "?"), gbits, rdma) if gbits else None


def _count(entry: ElementTree.Element, key: str, source: str, default: str = "") -> int:
    value = entry.get(key, default)
    number = whole_in(value, _MOST)
    if number is None:
        raise HeterogError(f"{source}: {key} of a <{entry.tag}> is {shown(value, 40)}, no number; give the file as dumped")
    return number


def _gpu(above: list[ElementTree.Element], source: str) -> Gpu:
    """The narrowest and slowest of the links from the card up to its processor."""
    links = [entry for entry in above if entry.tag == "pci" and entry.get("link_speed")]
    generations = [_GENERATIONS.get(entry.get("link_speed", "").split(" ")[0], 0) for entry in links]
    widths = [_count(entry, "link_width", source, "0") for entry in links]
    return Gpu("", 0, min((g for g in generations if g), default=0), min((w for w in widths if w), default=0))


def _numa(above: list[ElementTree.Element]) -> int | None:
    node = above[0].get("numaid", "") if above and above[0].tag == "cpu" else ""
    return whole_in(node, _MOST)  # -1: the machine has none


def _links(gpu: ElementTree.Element, buses: dict, source: str) -> dict[int | None, int]:
    """NVLinks of a card: by the place of the card that they lead to; None: to switches."""
    found: dict[int | None, int] = {None: 0}
    for link in gpu.findall("nvlink"):
        to = buses.get(link.get("target"))
        if to is not None or link.get("tclass") == _NVSWITCH:
            found[to] = found.get(to, 0) + _count(link, "count", source, "1")
    return found


def _path(above: list, above_other: list, direct: int, switched: int) -> str:
    """Of two cards, by what stands above each, and the NVLinks between them and to switches of both."""
    if direct or switched:
        return f"NV{direct or switched}"
    if not above or not above_other or above[0] is not above_other[0]:
        return "SYS"
    shared = sum(x is y for x, y in zip(above, above_other))
    if shared == 1:
        return "PHB"  # the processor alone
    return "PIX" if len(above) - shared <= 1 and len(above_other) - shared <= 1 else "PXB"


def read_nccl_tests(text: str, source: str = "nccl-tests") -> BusBandwidth:
    """The table of all_reduce_perf. What mpirun puts before lines, and pasting takes from them, does
    not matter: columns are found by the header's words."""
    lines = [re.sub(r"^\s*\[[\d,]+\]\s*(<std\w+>:)?", "", line) for line in lines_of(text)]
    _refuse_other_collectives(text, source)
    header = next((line.lstrip("# ").split() for line in lines if "algbw" in line and "busbw" in line), [])
    if not {"size", "time", "busbw"} <= set(header):
        raise HeterogError(f"{source}: no header 'size … time algbw busbw'; give what all_reduce_perf prints")
    size, time, busbw = (header.index(word) for word in ("size", "time", "busbw"))
    in_place = busbw + (busbw - time) + 2  # the same three columns again, after the errors of the first
    rows = []
    for words in (line.split() for line in lines):
        figures = [_figure(words, place) for place in (size, time, busbw, in_place)]
        if None not in figures[:3]:
            rows.append((int(figures[0]), 1e9 * max(figures[2], figures[3] or 0)))
    best = max(rows, key=lambda row: row[1], default=(0, 0))
    if not 0 < best[1] < 1e14:
        raise HeterogError(f"{source}: no row with a bus bandwidth above 0; run it with large sizes, -e 256M")
    found = (re.search(r"Rank\s+\d+\s.*?\bon\s+(\S+)\s+device", line) for line in lines)
    ranks = [rank[1] for rank in found if rank]
    return BusBandwidth(len(ranks), len(set(ranks)), best[1], best[0])


def _figure(words: list[str], place: int) -> float | None:
    number = number_in(words[place]) if place < len(words) else None
    return number if number is not None and 0 <= number < 1e15 else None


def _refuse_other_collectives(text: str, source: str) -> None:
    named = re.search(r"\b(all_gather|reduce_scatter|broadcast|alltoall|sendrecv|reduce|gather|scatter"
                      r"|hypercube)_perf\b", text)  # fmt: skip
    if named and "all_reduce_perf" not in text:
        raise HeterogError(f"{source}: it is of {named.group(0)}; give a run of all_reduce_perf")
