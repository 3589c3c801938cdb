"""What is known of a machine, whoever said it."""

from dataclasses import dataclass, field


@dataclass
class Gpu:
    name: str  # as the driver calls it: "NVIDIA A100-SXM4-40GB"; "" where nobody said
    memory_bytes: int = 0  # 0 where nobody said; what a driver shows is a little less than is built in
    pcie_generation: int = 0  # that card and slot both have
    pcie_width: int = 0  # lanes in use
    slices: int = 0  # MIG devices that it is cut into


@dataclass
class Nic:
    name: str
    gbits: float  # line rate
    rdma: bool
    infiniband: bool = False  # else Ethernet


@dataclass
class Topology:
    """`paths[i][j]`: "NV4" (so many NVLinks), "PIX", "PXB", "PHB", "NODE", "SYS"; "X" of a card and
    itself. `numa[i]`: the card's NUMA node, None where it is unknown."""

    paths: list[list[str]]
    numa: list[int | None]


@dataclass
class Machine:
    name: str
    gpus: list[Gpu] = field(default_factory=list)
    topology: Topology | None = None
    peers: list[list[str]] | None = None  # as paths; "OK" where one reads the other's memory
    nics: list[Nic] = field(default_factory=list)
    cpu_model: str = ""
    sockets: int = 1
    processors: int = 1
    memory_bytes: int = 0
    sources: list[str] = field(default_factory=list)  # where all this is from
    remarks: list[str] = field(default_factory=list)  # what could not be said, or was assumed
