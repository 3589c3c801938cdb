"""The data bases that hold for a cluster file: the shipped ones, and over them those beside it."""

import json
from dataclasses import dataclass
from pathlib import Path

from heterog.base.errors import HeterogError
from heterog.base.own_files import installed, nearest
from heterog.base.reading import parse_json, read_bytes, read_json
from heterog.base.values import as_list, as_number, as_object, as_string, required


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


# What is read of an entry here, with its bounds; the program checks the rest.
_SPEED = (1.0, 1e18)  # a second
_BYTES = (0.0, 2.0**50)
_FIGURES = {
    "devices": {"memory_bytes": _BYTES, "reserve_bytes": _BYTES, "fp32_flops_per_second": _SPEED,
                "half_flops_per_second": _SPEED, "memory_bytes_per_second": _SPEED},
    "links": {"bandwidth_bytes_per_second": _SPEED},
}  # fmt: skip
_OPTIONAL = {
    "devices": {"multiprocessors": (1.0, 1e6), "cache_bytes": _BYTES},
    "links": {"latency_seconds": (0.0, 10.0)},
}


def _entries(path: Path, key: str) -> dict[str, dict]:
    found: dict[str, dict] = {}
    base = as_object(read_json(path, comments=True), str(path))
    for i, value in enumerate(as_list(required(base, key, str(path)), f"{path}: {key}")):
        where = f"{path}: {key}[{i}]"
        entry = as_object(value, where)
        for figure, bounds in _FIGURES[key].items():
            as_number(required(entry, figure, where), f"{where}.{figure}", *bounds)
        for figure, bounds in _OPTIONAL[key].items():
            if figure in entry:
                as_number(entry[figure], f"{where}.{figure}", *bounds)
        found[as_string(required(entry, "name", where), f"{where}.name")] = entry
    return found


def with_card(contents: bytes | None, entry: dict, path: Path) -> bytes:
    """A devices.json that holds the card beside what it held: `contents`, None where there was none."""
    base: dict = {"format": "heterog-devices", "version": 1, "devices": []}
    if contents is not None:
        try:
            base = as_object(parse_json(contents, path), str(path))  # comments would be lost
        except HeterogError as error:
            raise HeterogError(
                f"{error}; it is there and holds comments, or is no JSON: add to its devices by hand "
                f"{json.dumps(entry)}"
            ) from error
    others = as_list(base.get("devices", []), f"{path}: devices")
    kept = [other for i, other in enumerate(others)
            if as_object(other, f"{path}: devices[{i}]").get("name") != entry["name"]]  # fmt: skip
    return json.dumps(base | {"devices": [*kept, entry]}, indent=1).encode() + b"\n"


def with_cards(entries: list[dict], cluster: Path) -> tuple[Path, bytes]:
    """The devices.json beside the cluster file, and what it is to hold."""
    path = cluster.parent / "devices.json"
    contents = read_bytes(path) if path.exists() else None
    for entry in entries:
        contents = with_card(contents, entry, path)
    return path, contents or b""
