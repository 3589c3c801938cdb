"""Figures of wires: which kind of link of links.json a fabric or a network card is."""

import re
from dataclasses import dataclass

from heterog.discover.facts import Nic


@dataclass
class Link:
    """A kind of links.json, and figures that come before the kind's."""

    kind: str
    source: str  # of what is said, for the comment beside it
    bandwidth: float | None = None  # bytes per second
    latency: float | None = None  # seconds
    device_bandwidth: float | None = None  # of a network card: what one device gets of it
    launch: float | None = None  # seconds

    def figures(self) -> dict:
        """As in a cluster file."""
        figures: dict = {"link": self.kind} if self.kind else {}
        given = {
            "bandwidth_bytes_per_second": self.bandwidth,
            "latency_seconds": self.latency,
            "launch_seconds": self.launch,
            "device_bandwidth_bytes_per_second": self.device_bandwidth,
        }
        return figures | {key: _rounded(value) for key, value in given.items() if value is not None}


def _rounded(value: float) -> float:
    """Four digits: more were never measured."""
    return float(f"{value:.4g}")


# Bytes per second of a PCIe lane pair that cards with peer access reach, by kind.
_PORTS = {(3, True): "pcie3", (3, False): "pcie3-staged", (4, True): "pcie4", (4, False): "pcie4-staged",
          (5, True): "pcie5", (5, False): "pcie5-staged"}  # fmt: skip
_BETWEEN_SOCKETS = {(3, True): "pcie3-sockets", (4, True): "pcie4-sockets", (5, True): "pcie5-staged"}


def pcie(generation: int, width: int, peers: bool, bandwidths: dict[str, float]) -> Link:
    """Of a port. `bandwidths`: of the kinds of links.json."""
    kind, share = _PORTS[_known(generation), peers], 1.0
    source = f"PCIe {generation} x{width}, {'peer access' if peers else 'copies through the host'}"
    if generation < 3:
        share, source = 2.0 ** (generation - 3), source + "; by its rate beside PCIe 3"
    if width < 16:
        share, source = share * width / 16, source + "; by its lanes of 16"
    return Link(kind, source, bandwidths[kind] * share if share < 1 else None)


def between_sockets(port: Link, generation: int, peers: bool, bandwidths: dict[str, float]) -> Link:
    """What crosses to the other processor: no faster than a port."""
    kind = _BETWEEN_SOCKETS.get((_known(generation), peers), port.kind)
    own = port.bandwidth or bandwidths[port.kind]
    if own <= bandwidths[kind]:
        return port
    return Link(kind, "between the processors")


def _known(generation: int) -> int:
    return min(max(generation, 3), 5)


# What an NVLink carries each way, GB/s, and how many a chip has: data sheets. GA102's carry 14.0625.
_NVLINKS = (
    (r"P100", 20.0, 4),
    (r"V100|TITAN V|Quadro GV100", 25.0, 6),
    (r"RTX 2080|TITAN RTX|Quadro RTX", 25.0, 2),
    (r"RTX 3090|RTX A[456]|\bA40\b|\bA10\b", 14.0625, 4),
    (r"A100|A800|A30\b", 25.0, 12),
    (r"H100|H200|H800|H20\b|GH200", 25.0, 18),
    (r"B200|GB200|B100|B300", 50.0, 18),
)
# Rings of cards that links.json has: card, NVLinks a hop.
_RINGS = {"nvlink2-x2": ("V100", 2), "nvlink3": ("A100", 12), "nvlink4": ("H[12]00", 18)}


def nvlink(name: str, count: int, total: int) -> Link:
    """Of cards of that name in a ring of `count` NVLinks a hop, each of which has `total` to all its
    neighbours: through switches the same links lead to all, in a mesh each neighbour has its own, and
    rings side by side use them all."""
    for kind, (pattern, hop) in _RINGS.items():
        if re.search(pattern, name) and count == hop:
            return Link(kind, f"{count} NVLinks")
    rate, most = next(((rate, most) for pattern, rate, most in _NVLINKS if re.search(pattern, name)), (25.0, 18))
    used = total if total <= most else count
    peak = used * rate * 1e9
    source = f"assumed: two thirds of the {peak / 1e9:.4g} GB/s of {used} NVLinks"
    return Link("nvlink3", source, peak * 2 / 3)


_RDMA = {25: "25gbe-rdma", 40: "40gbe-rdma", 50: "50gbe-rdma", 100: "100gbe-rdma"}
_TCP = {10: "10gbe-tcp", 25: "25gbe-tcp", 40: "40gbe-tcp", 50: "50gbe-tcp", 100: "100gbe-tcp"}


def network_card(nics: list[Nic], bandwidths: dict[str, float]) -> tuple[Link, Nic]:
    """The fastest cards of a machine, as one."""
    best = max(nics, key=lambda nic: (nic.rdma, nic.infiniband, nic.gbits))
    alike = [nic for nic in nics if (nic.rdma, nic.infiniband, nic.gbits) == (best.rdma, best.infiniband, best.gbits)]
    link = card_link(best, bandwidths)
    if best.rdma and len(alike) > 1:
        one = link.bandwidth or bandwidths[link.kind]
        link.bandwidth, link.device_bandwidth = one * len(alike), one
        link.source = f"{len(alike)} of them: {link.source}"
    return link, best


def card_link(nic: Nic, bandwidths: dict[str, float]) -> Link:
    what = f"{nic.name}, {nic.gbits:g} Gb/s " + (
        "InfiniBand" if nic.infiniband else "RDMA" if nic.rdma else "Ethernet, TCP"
    )
    if nic.infiniband and nic.gbits == 56:
        return Link("infiniband-fdr", what)
    kinds = _RDMA if nic.rdma else _TCP
    if nic.gbits in kinds:
        return Link(kinds[int(nic.gbits)], what)
    if not nic.rdma and nic.gbits > 100:
        return Link("100gbe-tcp", f"{what}: the host gives out first")
    # By the nearest kind of known bandwidth, as much of the line rate as that reaches.
    nearest = 100 if nic.rdma else min(kinds, key=lambda gbits: abs(gbits - nic.gbits))
    kind = kinds[nearest]
    return Link(kind, f"{what}; assumed: the share of the line rate of {nearest} Gb/s",
                bandwidths[kind] * nic.gbits / nearest)  # fmt: skip
