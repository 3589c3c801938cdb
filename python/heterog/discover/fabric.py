"""From how cards reach each other to the fabric of a cluster file."""

import re
from dataclasses import dataclass, field

from heterog.discover.facts import Gpu, Machine, Topology
from heterog.discover.links import Link, between_sockets, nvlink, pcie

# Cards whose driver gives them no peer access over PCIe, where `topo -p2p r` was not asked.
_WITHOUT_PEERS = re.compile(r"GeForce RTX [2345]0")
# PCIe generation of cards whose slot nobody described, by data sheets.
_GENERATIONS = (
    (r"H100|H200|H800|GH200|B200|GB200|RTX 50|RTX PRO", 5),
    (r"A100|A800|A[1-6]0\b|A10G|RTX A|RTX [34]0|L4\b|L40|Ada", 4),
)


@dataclass
class Fabric:
    kind: str  # "switch" or "sockets"
    link: Link
    socket_link: Link | None = None
    remarks: list[str] = field(default_factory=list)


def fabric_of(machine: Machine, bandwidths: dict[str, float]) -> Fabric:
    """Of two cards and more. One figure stands for all ports, so the slowest hop of the best ring
    decides: what an all-reduce gets."""
    gpus, topology = machine.gpus, machine.topology
    remarks: list[str] = []
    if topology is not None:
        count = best_ring(topology.paths)
        if count:
            remarks += _uneven_nvlinks(topology, count)
            return Fabric("switch", nvlink_of(machine), remarks=remarks)
        islands = islands_of(topology)
        if _are_halves(islands, len(gpus)):
            port = nvlink_of(machine.with_gpus(islands[0]))
            across = slowest(pcie_fabric(machine, bandwidths, remarks))
            remarks.append("NVLinks join the cards of each half; the halves have one PCIe port between them")
            return Fabric("sockets", port, across, remarks)
        joined = [f"{i} and {j}" for i, j in _pairs(len(gpus)) if topology.paths[i][j].startswith("NV")]
        if joined:
            remarks.append(
                f"NVLinks join GPUs {', '.join(joined)}, but no ring of all: one figure stands for all "
                "ports, that of PCIe"
            )
    else:
        remarks.append("how the cards reach each other was not said: taken as one PCIe switch")
    return pcie_fabric(machine, bandwidths, remarks)


def nvlink_of(machine: Machine) -> Link:
    """Of cards that close a ring of NVLinks."""
    assert machine.topology is not None
    paths = machine.topology.paths
    total = min(sum(int(path[2:]) for path in row if path.startswith("NV")) for row in paths)
    return nvlink(machine.gpus[0].name, best_ring(paths), total)


def slowest(fabric: Fabric) -> Link:
    return fabric.socket_link or fabric.link


def islands_of(topology: Topology) -> list[list[int]]:
    """Cards that NVLinks join, where these close a ring in each island; [] where nothing is gained by
    them, as one island is all cards or each card is one."""
    islands = _components(topology.paths, lambda path: path.startswith("NV"))
    for island in islands:
        if len(island) > 1 and not best_ring([[topology.paths[i][j] for j in island] for i in island]):
            return []
    return islands if 1 < len(islands) < len(topology.paths) else []


def pcie_fabric(machine: Machine, bandwidths: dict[str, float], remarks: list[str]) -> Fabric:
    """As if there were no NVLinks."""
    gpus, topology = machine.gpus, machine.topology
    generation, width = _slot(gpus, remarks)
    peers = _peer_access(machine, remarks)
    port = pcie(generation, width, peers, bandwidths)
    if topology is None:
        return Fabric("switch", port, remarks=remarks)
    groups = _sockets(topology)
    if len(groups) == 1:
        return _one_socket(topology, port, remarks)
    across = between_sockets(port, generation, peers, bandwidths)
    if _are_halves(groups, len(gpus)):
        return Fabric("sockets", port, across, remarks)
    sizes = " + ".join(str(len(group)) for group in groups)
    remarks.append(
        f"the cards hang on {len(groups)} NUMA nodes ({sizes}), which is no two halves in their order: all "
        "ports have the figure of what crosses between processors"
    )
    return Fabric("switch", across, remarks=remarks)


def _one_socket(topology: Topology, port: Link, remarks: list[str]) -> Fabric:
    """Boxes of many cards of PCIe 3 were measured: what crosses switches is slower."""
    count = len(topology.paths)
    if port.kind != "pcie3" or port.bandwidth is not None or count <= 4:
        return Fabric("switch", port, remarks=remarks)
    switches = _components(topology.paths, lambda path: path in ("PIX", "PXB"))
    across = Link("pcie3-across-switches", "between switches of one root")
    if _are_halves(switches, count):
        return Fabric("sockets", port, across, remarks)
    return Fabric("switch", port if len(switches) == 1 else across, remarks=remarks)


def best_ring(paths: list[list[str]]) -> int:
    """NVLinks of the weakest hop of the ring through all cards whose weakest hop is strongest; 0 where
    none closes."""
    links = [[int(path[2:]) if path.startswith("NV") else 0 for path in row] for row in paths]
    for count in sorted({entry for row in links for entry in row if entry}, reverse=True):
        if _has_ring([[j for j, entry in enumerate(row) if entry >= count] for row in links]):
            return count
    return 0


def _has_ring(neighbours: list[list[int]]) -> bool:
    count = len(neighbours)
    if count == 2:
        return bool(neighbours[0])
    if any(len(row) < 2 for row in neighbours):
        return False

    def goes_on(path: list[int]) -> bool:
        if len(path) == count:
            return path[0] in neighbours[path[-1]]
        return any(goes_on([*path, card]) for card in neighbours[path[-1]] if card not in path)

    return goes_on([0])


def _uneven_nvlinks(topology: Topology, count: int) -> list[str]:
    slower = [f"{i} and {j}" for i, j in _pairs(len(topology.paths)) if not _reaches(topology.paths[i][j], count)]
    if not slower:
        return []
    return [f"every port has the figure of a ring of {count} NVLinks a hop; {len(slower)} pairs of cards have "
            f"fewer or none (GPUs {slower[0]}, …): single transfers between them take longer"]  # fmt: skip


def _reaches(path: str, count: int) -> bool:
    return path.startswith("NV") and int(path[2:]) >= count


def _pairs(count: int):
    return ((i, j) for i in range(count) for j in range(i + 1, count))


def _slot(gpus: list[Gpu], remarks: list[str]) -> tuple[int, int]:
    generations = {gpu.pcie_generation or _data_sheet_generation(gpu.name) for gpu in gpus}
    widths = {gpu.pcie_width or 16 for gpu in gpus}
    if any(not gpu.pcie_generation for gpu in gpus):
        remarks.append("generation and lanes of PCIe were not said: as of the cards' data sheets, 16 lanes")
    if len(generations) > 1 or len(widths) > 1:
        remarks.append("the cards' PCIe links differ: all ports have the figure of the slowest")
    return min(generations), min(widths)


def _data_sheet_generation(name: str) -> int:
    return next((generation for pattern, generation in _GENERATIONS if re.search(pattern, name)), 3)


def _peer_access(machine: Machine, remarks: list[str]) -> bool:
    if machine.peers is not None:
        return all(machine.peers[i][j] == "OK" for i, j in _pairs(len(machine.gpus)))
    without = any(_WITHOUT_PEERS.search(gpu.name) for gpu in machine.gpus)
    remarks.append(
        f"whether cards read each other's memory was not said (nvidia-smi topo -p2p r): assumed that they do"
        f"{' not, as gaming cards since 2018' if without else ''}"
    )
    return not without


def _sockets(topology: Topology) -> list[list[int]]:
    """Cards by processor: by the paths, or by NUMA nodes where all paths go between processors, as
    the bridges of one processor are told to."""
    groups = _components(topology.paths, lambda path: path != "SYS")
    if len(groups) > 2 and all(node is not None for node in topology.numa):
        nodes = sorted({node for node in topology.numa if node is not None})
        groups = [[i for i, node in enumerate(topology.numa) if node == at] for at in nodes]
    return groups


def _components(paths: list[list[str]], joins) -> list[list[int]]:
    left, groups = set(range(len(paths))), []
    while left:
        group, found = set(), [min(left)]
        while found:
            card = found.pop()
            group.add(card)
            found += [other for other in left - group if joins(paths[card][other])]
        left -= group
        groups.append(sorted(group))
    return groups


def _are_halves(groups: list[list[int]], count: int) -> bool:
    """As a fabric of kind sockets has them: the first half holds the odd card."""
    return sorted(groups) == [list(range((count + 1) // 2)), list(range((count + 1) // 2, count))]
