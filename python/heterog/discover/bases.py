"""The data bases that hold for a cluster file: the shipped ones, and over them those beside it."""

import json
from dataclasses import dataclass
from pathlib import Path

from heterog.devices import installed, nearest
from heterog.discover.cards import read_commented_json
from heterog.discover.machine import read_text
from heterog.errors import HeterogError
from heterog.files import replace_file


@dataclass
class DataBases:
    devices: dict[str, dict]  # entries of devices.json by name
    links: dict[str, dict]  # of links.json

    @property
    def bandwidths(self) -> dict[str, float]:
        return {name: entry["bandwidth_bytes_per_second"] for name, entry in self.links.items()}


def data_bases(cluster: Path | None) -> DataBases:
    """Of a cluster file that stands, or is to stand, at that path."""
    found = {}
    for name, key in (("devices.json", "devices"), ("links.json", "links")):
        near = nearest(cluster, name) if cluster is not None else None
        entries: dict[str, dict] = {}
        for path in (installed(name), near):
            if path is not None:
                entries |= _entries(path, key)
        found[key] = entries
    return DataBases(**found)


# What is read of an entry here; the program checks the rest.
_NEEDED = {"devices": ("memory_bytes", "reserve_bytes", "fp32_flops_per_second", "half_flops_per_second",
                       "memory_bytes_per_second"),
           "links": ("bandwidth_bytes_per_second",)}  # fmt: skip


def _entries(path: Path, key: str) -> dict[str, dict]:
    try:
        entries = {entry["name"]: entry for entry in read_commented_json(read_text(str(path)))[key]}
        for entry in entries.values():
            if not all(isinstance(entry[figure], (int, float)) and entry[figure] >= 0 for figure in _NEEDED[key]):
                raise TypeError(f"{entry['name']} has a figure that is none")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise HeterogError(f"{path}: no data base of {key}: {error} (docs/formats.md)") from error
    return entries


def with_card(contents: str | None, entry: dict, path: Path) -> str:
    """A devices.json that holds the card beside what it held: `contents`, None where there was none."""
    base: dict = {"format": "heterog-devices", "version": 1, "devices": []}
    if contents is not None:
        try:
            base = json.loads(contents)  # comments would be lost
        except json.JSONDecodeError as error:
            raise HeterogError(
                f"{path}: it is there and holds comments, or is no JSON; add to its devices by hand: "
                f"{json.dumps(entry)}"
            ) from error
    base["devices"] = [other for other in base["devices"] if other["name"] != entry["name"]] + [entry]
    return json.dumps(base, indent=1) + "\n"


def add_cards(entries: list[dict], cluster: Path) -> Path:
    """Into the devices.json beside the cluster file."""
    path = cluster.parent / "devices.json"
    contents = path.read_text(encoding="utf-8") if path.is_file() else None
    for entry in entries:
        contents = with_card(contents, entry, path)
    replace_file(path, (contents or "").encode())
    return path
