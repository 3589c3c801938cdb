"""Reads what a machine says of its network cards: ibstat, and the files of the system."""

import re

from heterog.discover.facts import Nic
from heterog.errors import HeterogError


def gigabits(text: str, of_unit: float = 1) -> float | None:
    """Per second, of "200 Gb/sec (4X HDR)" or, with 1000, of Mb/s; None where no card has such a rate."""
    found = re.match(r"\d{1,9}(\.\d{1,3})?(?![\d.])", text, re.ASCII)
    rate = float(found.group()) / of_unit if found else 0
    return rate if 0 < rate < 1e5 else None


def read_ibstat(text: str, source: str = "ibstat") -> list[Nic]:
    """Ports that are up."""
    nics: list[Nic] = []
    seen = False
    for card in re.split(r"^\s*CA '", text, flags=re.MULTILINE)[1:]:
        name = card.partition("'")[0]
        for port in re.split(r"^\s*Port (?=\d+:)", card, flags=re.MULTILINE)[1:]:
            seen = True
            said = dict(re.findall(r"^\s*(State|Rate|Link layer):\s*(.*?)\s*$", port, re.MULTILINE))
            rate = gigabits(said.get("Rate", ""))
            if said.get("State") == "Active" and rate:
                nics.append(Nic(name, rate, True, said.get("Link layer") == "InfiniBand"))
    if not seen:
        raise HeterogError(f"{source}: no port of a card; give what `ibstat` prints")
    return nics


def nics_of(said: dict) -> list[Nic]:
    """Of what collect.py says. An RDMA card and its Ethernet interface are one card, counted as RDMA."""
    rdma = []
    for port in said.get("infiniband", []):
        rate = gigabits(port.get("rate", ""))
        if "ACTIVE" in port.get("state", "") and rate:
            layer = port.get("layer") == "InfiniBand"
            rdma.append(Nic(str(port.get("name")), rate, True, layer))
    if rdma:
        return rdma
    found = []
    for interface in said.get("interfaces", []):
        rate = gigabits(interface.get("speed", ""), 1000)
        up = interface.get("state") == "up" and not interface.get("of_bond")
        if up and rate:
            found.append(Nic(str(interface.get("name")), rate, False))
    return found
