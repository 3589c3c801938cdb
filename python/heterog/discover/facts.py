"""What is known of a machine, whoever said it."""

from dataclasses import dataclass, field, replace


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
class Wire:
    """As timed."""

    bandwidth: float  # bytes per second
    latency: float  # seconds
    launch: float  # seconds
    source: str


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
    cpus: int | None = None  # devices that its processor is to be, without GPUs
    measured_fabric: Wire | None = None
    measured_nic: Wire | None = None
    sources: list[str] = field(default_factory=list)  # where all this is from
    remarks: list[str] = field(default_factory=list)  # what could not be said, or was assumed

    def with_gpus(self, which: list[int]) -> "Machine":
        """The same machine with these of its GPUs."""
        topology, peers = self.topology, self.peers
        if topology is not None:
            paths = [[topology.paths[i][j] for j in which] for i in which]
            topology = Topology(paths, [topology.numa[i] for i in which])
        if peers is not None:
            peers = [[peers[i][j] for j in which] for i in which]
        return replace(self, gpus=[self.gpus[i] for i in which], topology=topology, peers=peers)
