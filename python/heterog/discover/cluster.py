"""From machines to a cluster file, in which comments say where each figure is from."""

import itertools
import json
import re
from dataclasses import dataclass, field

from heterog.base.errors import HeterogError
from heterog.discover.cards import device_type
from heterog.discover.fabric import Fabric, fabric_of
from heterog.discover.facts import Gpu, Machine, Wire
from heterog.discover.islands import split_islands
from heterog.discover.links import Link, network_card
from heterog.discover.parts import split_gpu

# Of two processes over the loopback device of one machine: configs/clusters/local-2cpu.json.
_LOOPBACK = Link(
    "",
    "assumed, of processes that talk over loopback: as configs/clusters/local-2cpu.json",
    bandwidth=1.46e9,
    latency=13.5e-6,
)
SWITCH_SECONDS = 3e-6  # of a network's latency
_UNKNOWN_NIC = Link("10gbe-tcp", "assumed: no card's speed was found")


@dataclass
class Choices:
    """What the user says, or has measured, comes before what was found."""

    name: str = "discovered"
    cpus: int | None = None  # CPU devices of a machine without GPUs
    nic: Link | None = None
    fabric: Link | None = None
    split: list[int] = field(default_factory=list)  # multiprocessors of each part of the one GPU
    # Of the kinds of links.json, if a machine that stands alone may be cut into islands of NVLinks.
    latencies: dict[str, float] | None = None


@dataclass
class Description:
    """Of one machine: the values of a cluster file, and the comments that stand above them."""

    machine: Machine
    devices: list[dict]
    fabric: Fabric | None = None
    nic: Link | None = None
    remarks: list[str] = field(default_factory=list)


@dataclass
class ClusterText:
    text: str
    remarks: list[str]  # what was assumed or left out
    models: list[str]  # device types, each once


def cluster_text(
    machines: list[Machine], devices: dict[str, dict], bandwidths: dict[str, float], choices: Choices
) -> ClusterText:
    """`devices`: entries of devices.json by name; `bandwidths`: of the kinds of links.json."""
    if not machines:
        raise HeterogError("discover: no machine; name hosts, or give files")
    _name_apart(machines)
    described = _islands(machines, devices, bandwidths, choices)
    if not described:
        described = [_describe(machine, devices, bandwidths, choices, len(machines) > 1) for machine in machines]
    lines = ["// Written by `heterog discover`. Every figure may be put right by hand: docs/clusters.md."]
    lines += ["{", '  "format": "heterog-cluster",', '  "version": 1,']
    lines += [f'  "name": {json.dumps(choices.name)},', '  "machines": [']
    for i, description in enumerate(described):
        lines += _machine_lines(description, "," if i + 1 < len(described) else "")
    lines.append("  ]" + ("," if len(machines) > 1 else ""))
    if len(machines) > 1:
        lines += _network_lines(described)
    lines.append("}")
    models = list(dict.fromkeys(entry["model"] for d in described for entry in d.devices))
    remarks = [f"{d.machine.name}: {remark}" for d in described for remark in d.remarks]
    return ClusterText("\n".join(lines) + "\n", list(dict.fromkeys(remarks)), models)


def _islands(machines: list[Machine], devices, bandwidths, choices: Choices) -> list[Description]:
    """Of a machine that stands alone and that nobody has measured."""
    alone = machines[0] if len(machines) == 1 else None
    known = choices.nic or choices.fabric or (alone and alone.measured_fabric)
    if alone is None or known or choices.latencies is None:
        return []
    found = split_islands(alone, bandwidths, choices.latencies)
    if found is None:
        return []
    described = [_describe(island, devices, bandwidths, choices, False) for island in found[0]]
    for description in described:
        description.nic = found[1]
    return described


def _network_lines(described: list[Description]) -> list[str]:
    kinds = [d.nic.kind if d.nic is not None else "" for d in described]
    if all(d.machine.measured_nic for d in described):
        seconds, source = SWITCH_SECONDS, "assumed: a switch; the rest of what was measured is the cards'"
    elif all("rdma" in kind or "infiniband" in kind for kind in kinds):
        seconds, source = SWITCH_SECONDS, "assumed: a switch"
    else:
        seconds, source = 10e-6, "assumed: a switch, and TCP"
    return [f"  {_comment(source)}", f'  "network": {_json({"latency_seconds": seconds})}']


def _name_apart(machines: list[Machine]) -> None:
    """Names of hosts as cluster files may have them."""
    taken: set[str] = set()
    for machine in machines:
        printable = re.sub(r"[^\x20-\x7e]|[/\\]", "-", machine.name).lstrip(".")[:90] or "machine"
        names = itertools.chain([printable], (f"{printable}-{i}" for i in itertools.count(2)))
        machine.name = next(name for name in names if name not in taken)
        taken.add(machine.name)


def _describe(
    machine: Machine, devices: dict[str, dict], bandwidths: dict[str, float], choices: Choices, many: bool
) -> Description:
    if choices.split:
        if many:
            raise HeterogError("--split: ranks on parts are threads of one process; give one machine")
        description = Description(machine, _gpu_entries(machine.gpus, devices))
        description.devices, description.fabric = split_gpu(description.devices, choices.split, devices)
    elif machine.gpus:
        description = Description(machine, _gpu_entries(machine.gpus, devices))
        if len(machine.gpus) > 1:
            description.fabric = _measured_fabric(machine, choices) or fabric_of(machine, bandwidths)
            description.remarks += description.fabric.remarks
        if len({device_type(gpu.name) for gpu in machine.gpus}) > 1:
            description.remarks.append(
                "cards of several kinds, numbered as nvidia-smi does: set CUDA_DEVICE_ORDER=PCI_BUS_ID where "
                "plans are run"
            )
    else:
        description = _cpu_description(machine, choices)
    description.remarks = machine.remarks + description.remarks
    if choices.nic is not None:
        description.nic = choices.nic
    elif machine.nics:
        description.nic, _ = network_card(machine.nics, bandwidths)
    elif machine.measured_nic:
        description.nic = Link("", "")
    elif many:
        description.nic = _UNKNOWN_NIC
        description.remarks.append("no speed of a network card was found: taken as 10 GbE; say --nic KIND or --nic GBITS")
    if choices.nic is None and machine.measured_nic:
        description.nic = _measured_card(description.nic, machine.measured_nic)
    return description


def _measured_fabric(machine: Machine, choices: Choices) -> Fabric | None:
    wire = machine.measured_fabric
    link = choices.fabric or (_timed(wire) if wire is not None else None)
    return Fabric("switch", link) if link is not None else None


def _timed(wire: Wire) -> Link:
    return Link("", wire.source, wire.bandwidth, wire.latency, launch=wire.launch or None)


def _measured_card(found: Link, wire: Wire) -> Link:
    """One rank of each machine sent: of several cards it filled one."""
    link = _timed(wire)
    if found.device_bandwidth:
        several = (found.bandwidth or 0) / found.device_bandwidth
        link.bandwidth, link.device_bandwidth = several * wire.bandwidth, wire.bandwidth
        link.source += f", of one card of {several:g}"
    return link


def cpu_devices(machine: Machine, wanted: int | None) -> int:
    """One a processor; two on one processor, to try plans out."""
    return wanted or (machine.sockets if machine.sockets > 1 else min(2, max(1, machine.processors)))


def _cpu_description(machine: Machine, choices: Choices) -> Description:
    count = cpu_devices(machine, choices.cpus or machine.cpus)
    entry: dict = {"model": "CPU", "count": count}
    if machine.memory_bytes:
        entry["memory_bytes"] = machine.memory_bytes // count
    remarks = ["no GPU was found: processes on its CPU, of round figures; `heterog profile` measures them"]
    fabric = _measured_fabric(machine, choices) or Fabric("switch", _LOOPBACK)
    return Description(machine, [entry], fabric if count > 1 else None, remarks=remarks)


def _gpu_entries(gpus: list[Gpu], devices: dict[str, dict]) -> list[dict]:
    """Neighbours of one kind are one entry."""
    entries: list[dict] = []
    for gpu in gpus:
        model = device_type(gpu.name)
        if model not in devices:
            raise HeterogError(
                f"'{gpu.name}' is no card of devices.json; give its data sheet's figures, as "
                f"--card '{model}:fp32=TFLOPS,fp16=TFLOPS,bandwidth=GB/s,memory=GiB,sms=N'"
            )
        entry: dict = {"model": model}
        built_in = devices[model]["memory_bytes"]
        # A driver shows up to a tenth less than is built in: error correction, and its own.
        if gpu.memory_bytes and not 0.9 * built_in < gpu.memory_bytes < 1.01 * built_in:
            entry["memory_bytes"] = gpu.memory_bytes
        if entries and {k: v for k, v in entries[-1].items() if k != "count"} == entry:
            entries[-1]["count"] = entries[-1].get("count", 1) + 1
        else:
            entries.append(entry)
    return entries


def _machine_lines(description: Description, end: str) -> list[str]:
    machine, fabric, nic = description.machine, description.fabric, description.nic
    lines = [f"    {_comment(line)}" for line in [*_about(machine), *description.remarks]]
    fields: list[tuple[str, str, object]] = [("", "devices", description.devices)]
    if fabric is not None:
        values = {"kind": fabric.kind} | fabric.link.figures()
        said = fabric.link.source
        if fabric.socket_link is not None:
            values |= _socket_figures(fabric.socket_link)
            said += f"; {fabric.socket_link.source}" * (fabric.socket_link is not fabric.link)
        fields.append((said, "fabric", values))
    if nic is not None:
        fields.append((nic.source, "nic", nic.figures()))
    if machine.memory_bytes and machine.gpus:
        fields.append(("", "host_memory_bytes", machine.memory_bytes))
    lines.append(f'    {{"name": {json.dumps(machine.name)},')
    for i, (source, key, value) in enumerate(fields):
        if source:
            lines.append(f"     {_comment(source)}")
        lines.append(f'     "{key}": {_json(value)}' + ("}" + end if i + 1 == len(fields) else ","))
    return lines


def _json(value) -> str:
    """As people write figures: 1.46e9."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: {_json(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_json(entry) for entry in value) + "]"
    if isinstance(value, float) and value >= 1e6:
        return f"{value / 1e9:.4g}e9"
    return json.dumps(value)


def _socket_figures(link: Link) -> dict:
    if link.bandwidth is None:
        return {"socket_link": link.kind}
    return {"socket_bandwidth_bytes_per_second": link.figures()["bandwidth_bytes_per_second"]}


def _about(machine: Machine) -> list[str]:
    """The sources, and what stands there, in a line each."""
    said = [f"from {', '.join(machine.sources)}"] if machine.sources else []
    if machine.gpus:
        names = list(dict.fromkeys(gpu.name for gpu in machine.gpus))
        said.append(", ".join(f"{sum(gpu.name == name for gpu in machine.gpus)} x {name}" for name in names))
    elif machine.cpu_model:
        said.append(f"{machine.processors} processors, {machine.cpu_model}")
    return said


def _comment(text: str) -> str:
    """It ends with its line, whatever names of others it holds."""
    return "// " + " ".join("".join(c if c.isprintable() else " " for c in text).split())
