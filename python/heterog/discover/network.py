"""Reads what a machine says of its network cards: ibstat, and the files of the system."""

import re

from heterog.base.errors import HeterogError
from heterog.base.reading import lines_of
from heterog.base.values import as_list, as_object, as_string
from heterog.discover.facts import Nic


def gigabits(text: str, of_unit: float = 1) -> float | None:
    """Per second, of "200 Gb/sec (4X HDR)" or, with 1000, of Mb/s; None where no card has such a rate."""
    found = re.match(r"\d{1,9}(\.\d{1,3})?(?![\d.])", text, re.ASCII)
    rate = float(found.group()) / of_unit if found else 0
    return rate if 0 < rate < 1e5 else None


def read_ibstat(text: str, source: str = "ibstat") -> list[Nic]:
    """Ports that are up."""
    nics: list[Nic] = []
    seen = False
    text = "\n".join(line.strip() for line in lines_of(text))
    for card in re.split(r"^CA '", text, flags=re.MULTILINE)[1:]:
        name = card.partition("'")[0]
        for port in re.split(r"^Port (?=[0-9]+:)", card, flags=re.MULTILINE)[1:]:
            seen = True
            said = dict(re.findall(r"^(State|Rate|Link layer):[ \t]*(.*)$", port, re.MULTILINE))
            rate = gigabits(said.get("Rate", ""))
            if said.get("State") == "Active" and rate:
                nics.append(Nic(name, rate, True, said.get("Link layer") == "InfiniBand"))
    if not seen:
        raise HeterogError(f"{source}: no port of a card; give what `ibstat` prints")
    return nics


def nics_of(said: dict, source: str) -> list[Nic]:
    """Of what collect.py says. An RDMA card and its Ethernet interface are one card, counted as RDMA."""
    rdma = []
    for port in _entries(said, "infiniband", ("name", "rate", "state", "layer"), source):
        rate = gigabits(port["rate"])
        if "ACTIVE" in port["state"] and rate:
            rdma.append(Nic(port["name"], rate, True, port["layer"] == "InfiniBand"))
    if rdma:
        return rdma
    found = []
    for interface in _entries(said, "interfaces", ("name", "speed", "state"), source):
        rate = gigabits(interface["speed"], 1000)
        if interface["state"] == "up" and not interface.get("of_bond") and rate:
            found.append(Nic(interface["name"], rate, False))
    return found


def _entries(said: dict, key: str, texts: tuple[str, ...], source: str) -> list[dict]:
    """Objects with these fields, empty where they are absent."""
    found = []
    for i, value in enumerate(as_list(said.get(key, []), f"{source}: {key}")):
        entry = as_object(value, f"{source}: {key}[{i}]")
        found.append(entry | {name: as_string(entry.get(name, ""), f"{source}: {key}[{i}].{name}") for name in texts})
    return found
