"""Reads what a machine says of its network cards: ibstat, and the files of the system."""

import re

from heterog.discover.facts import Nic
from heterog.errors import HeterogError


def read_ibstat(text: str, source: str = "ibstat") -> list[Nic]:
    """Ports that are up."""
    nics: list[Nic] = []
    seen = False
    for card in re.split(r"^\s*CA '", text, flags=re.MULTILINE)[1:]:
        name = card.partition("'")[0]
        for port in re.split(r"^\s*Port (?=\d+:)", card, flags=re.MULTILINE)[1:]:
            seen = True
            said = dict(re.findall(r"^\s*(State|Rate|Link layer):\s*(.*?)\s*$", port, re.MULTILINE))
            rate = re.match(r"[\d.]+", said.get("Rate", ""))
            if said.get("State") == "Active" and rate:
                nics.append(Nic(name, float(rate.group()), True, said.get("Link layer") == "InfiniBand"))
    if not seen:
        raise HeterogError(f"{source}: no port of a card; give what `ibstat` prints")
    return nics


def nics_of(said: dict) -> list[Nic]:
    """Of what collect.py says. An RDMA card and its Ethernet interface are one card, counted as RDMA."""
    rdma = []
    for port in said.get("infiniband", []):
        rate = re.match(r"[\d.]+", port.get("rate", ""))
        if "ACTIVE" in port.get("state", "") and rate:
            layer = port.get("layer") == "InfiniBand"
            rdma.append(Nic(port.get("name", "?"), float(rate.group()), True, layer))
    if rdma:
        return rdma
    found = []
    for interface in said.get("interfaces", []):
        speed = interface.get("speed", "")
        up = interface.get("state") == "up" and not interface.get("of_bond")
        if up and re.fullmatch(r"\d+", speed) and int(speed) > 0:
            found.append(Nic(interface.get("name", "?"), int(speed) / 1000, False))
    return found
