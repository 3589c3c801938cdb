"""A machine whose cards NVLink bridges join in pairs (or other islands) alone, for a cluster file.

A fabric has one figure for all its ports. So each island stands in the file as a machine of its own,
with NVLink inside, and PCIe in the place of a network card.
"""

from dataclasses import replace

from heterog.discover.fabric import islands_of, pcie_fabric, slowest
from heterog.discover.facts import Machine
from heterog.discover.links import Link


def split_islands(
    machine: Machine, bandwidths: dict[str, float], latencies: dict[str, float]
) -> tuple[list[Machine], Link] | None:
    """The islands, and what joins them; None where there are none. `bandwidths`, `latencies`: of the
    kinds of links.json."""
    if machine.topology is None or len(machine.gpus) < 2:
        return None
    islands = islands_of(machine.topology)
    if not islands:
        return None
    remarks: list[str] = []
    wire = slowest(pcie_fabric(machine, bandwidths, remarks))
    # A hop between machines takes the latency of two cards.
    wire = replace(wire, latency=(wire.latency or latencies[wire.kind]) / 2,
                   source=f"PCIe between the islands, one port's: {wire.source}")  # fmt: skip
    joined = "; ".join(", ".join(map(str, island)) for island in islands if len(island) > 1)
    remarks.append(f"NVLinks join GPUs {joined}, and not all: each island is a machine of this file")
    order = [card for island in islands for card in island]
    if order != sorted(order):
        numbers = ",".join(map(str, order))
        remarks.append(f"the file has the cards in this order: set CUDA_VISIBLE_DEVICES={numbers} where plans are run")
    made = []
    for number, island in enumerate(islands):
        one = machine.with_gpus(island)
        made.append(
            replace(
                one,
                name=f"{machine.name}-{number}",
                memory_bytes=machine.memory_bytes // len(islands),
                remarks=[*machine.remarks, *remarks] if number == 0 else [],
            )
        )
    return made, wire
