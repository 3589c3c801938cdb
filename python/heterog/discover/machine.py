"""One machine: from outputs, collected or given as files, to what is known of it."""

from dataclasses import dataclass
from pathlib import Path

from heterog.base.errors import HeterogError
from heterog.base.reading import MOST_OUTPUT_BYTES, read_json, read_text
from heterog.base.values import as_int, as_object, as_string, check_format
from heterog.discover.facts import Gpu, Machine
from heterog.discover.nccl import read_nccl_topology
from heterog.discover.network import nics_of, read_ibstat
from heterog.discover.smi_xml import read_smi_xml
from heterog.discover.topo import read_peers, read_topology


@dataclass
class Outputs:
    """Files with what commands printed on the machine that is described."""

    smi_xml: str | None = None
    topo: str | None = None
    p2p: str | None = None
    nccl_topo: str | None = None
    ibstat: str | None = None


def machine_of(said: dict, source: str) -> Machine:
    """Of what collect.py says there."""
    check_format(as_object(said, source), source, "heterog-machine", 1)
    cpu = as_object(said.get("cpu", {}), f"{source}: cpu")
    printed = {key: as_string(said.get(key, ""), f"{source}: {key}") for key in ("smi_xml", "topo", "p2p")}
    machine = Machine(
        name=as_string(said.get("host", ""), f"{source}: host"),
        nics=nics_of(said, source),
        cpu_model=" ".join(as_string(cpu.get("model", ""), f"{source}: cpu.model").split()),
        sockets=as_int(cpu.get("sockets", 1), f"{source}: cpu.sockets", 0, 1024),
        processors=as_int(cpu.get("processors", 1), f"{source}: cpu.processors", 0, 1 << 20),
        memory_bytes=as_int(said.get("memory_bytes", 0), f"{source}: memory_bytes", 0, 1 << 50),
        sources=[source],
    )
    if printed["smi_xml"]:
        machine.gpus = read_smi_xml(printed["smi_xml"], f"{source}: nvidia-smi -q -x")
    if len(machine.gpus) > 1 and printed["topo"]:
        machine.topology = read_topology(printed["topo"], f"{source}: nvidia-smi topo -m")
    if len(machine.gpus) > 1 and printed["p2p"]:
        machine.peers = read_peers(printed["p2p"], f"{source}: nvidia-smi topo -p2p r")
    return _checked(machine, source)


def machine_of_files(outputs: Outputs, names: list[str], name: str) -> Machine:
    """`names`: of the cards, where no file has them."""
    machine = Machine(name=name)
    if outputs.nccl_topo is not None:
        nccl = read_nccl_topology(read_output(outputs.nccl_topo), outputs.nccl_topo)
        machine.gpus, machine.topology, machine.nics = nccl.gpus, nccl.topology, nccl.nics
    if outputs.topo is not None:
        machine.topology = read_topology(read_output(outputs.topo), outputs.topo)
    if outputs.smi_xml is not None:
        machine.gpus = read_smi_xml(read_output(outputs.smi_xml), outputs.smi_xml)
    if outputs.p2p is not None:
        machine.peers = read_peers(read_output(outputs.p2p), outputs.p2p)
    if outputs.ibstat is not None:
        machine.nics = read_ibstat(read_output(outputs.ibstat), outputs.ibstat)
    machine.sources = [Path(path).name for path in vars(outputs).values() if path is not None]
    machine.gpus = _named(machine, names)
    return _checked(machine, name)


def _named(machine: Machine, names: list[str]) -> list[Gpu]:
    gpus = machine.gpus
    if names:
        count = len(gpus) or (len(machine.topology.paths) if machine.topology else len(names))
        names = names * count if len(names) == 1 else names
        if len(names) != count:
            raise HeterogError(f"--gpus: {len(names)} names for {count} GPUs; give one a GPU, or one for all")
        gpus = gpus or [Gpu("") for _ in names]
        for gpu, name in zip(gpus, names, strict=True):
            gpu.name = name
    if not gpus or not all(gpu.name for gpu in gpus):
        raise HeterogError("the files do not name the GPUs; add --smi-xml FILE, or --gpus 'NVIDIA L4:4'")
    return gpus


def _checked(machine: Machine, source: str) -> Machine:
    count = len(machine.gpus)
    for what, matrix in (("topo -m", machine.topology and machine.topology.paths), ("topo -p2p", machine.peers)):
        if matrix and len(matrix) != count:
            raise HeterogError(f"{source}: {count} GPUs by name, {len(matrix)} in {what}; give outputs of one machine")
    return _without_slices(machine, source)


def _without_slices(machine: Machine, source: str) -> Machine:
    """A card that MIG cuts up is one process's a slice, which no cluster file describes."""
    whole = [i for i, gpu in enumerate(machine.gpus) if not gpu.slices]
    if len(whole) == len(machine.gpus):
        return machine
    if not whole:
        raise HeterogError(f"{source}: MIG cuts every GPU up; switch it off (nvidia-smi -mig 0)")
    cut = ", ".join(str(i) for i, gpu in enumerate(machine.gpus) if gpu.slices)
    machine.remarks.append(f"left out: GPU {cut}, which MIG cuts up; hide them with CUDA_VISIBLE_DEVICES")
    return machine.with_gpus(whole)


def read_output(path: str) -> str:
    """What a command printed."""
    return read_text(path, MOST_OUTPUT_BYTES, "replace")


def read_collected(path: str) -> Machine:
    """What collect.py printed."""
    return machine_of(read_json(path, MOST_OUTPUT_BYTES), path)
