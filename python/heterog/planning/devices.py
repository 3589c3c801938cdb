"""device_info: the ways to say which devices there are, and the cluster file that they become."""

import hashlib
import json
import os
import re
from pathlib import Path

from heterog.base.cache_files import kept, make_entry_folder
from heterog.base.errors import HeterogError
from heterog.base.own_files import installed, nearest, shipped
from heterog.base.reading import MOST_GRAPH_BYTES, read_bytes
from heterog.base.values import whole_in
from heterog.discover.auto import auto_cluster

_DATA_BASES = ("devices.json", "links.json")
# What the loopback device of two cores achieves (configs/clusters/local-2cpu.json).
_CPU_FABRIC = {"kind": "switch", "bandwidth_bytes_per_second": 1.46e9, "latency_seconds": 13.5e-6}
_GPU_FABRIC = {"kind": "switch", "link": "pcie3"}


def cluster_file(device_info, cache: Path, ranks: bool = True) -> str:
    """A cluster file (docs/formats.md) for

    "auto"       what this machine has, or with `ranks` the machines of the job that this is a rank of
    a path       of one, or the name of one of the project's, as "heterog-8gpu"
    "cpu:2"      so many CPU devices of this host
    a list       of device models, or of {"model": …, "count": …}: one host, cards on PCIe 3
    a dict       what a cluster file holds; format, version and name may be left out
    """
    if is_path(device_info):
        return _given(Path(device_info), cache)
    if isinstance(device_info, str) and device_info == "auto":
        return _kept(auto_cluster(ranks).encode(), {name: installed(name) for name in _DATA_BASES}, cache)
    try:
        text = json.dumps(_cluster(device_info), indent=1).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise HeterogError(f"device_info: {error}; it holds what a cluster file holds") from error
    return _kept(text, {name: installed(name) for name in _DATA_BASES}, cache)


def is_path(device_info) -> bool:
    """Whether it names a cluster file; else it says what one would hold."""
    if isinstance(device_info, str):
        return re.fullmatch(r"cpu(:\d+)?|auto", device_info) is None
    return isinstance(device_info, os.PathLike)


def _cluster(device_info) -> dict:
    if isinstance(device_info, str):
        count = whole_in(device_info.partition(":")[2] or "1", 1024)
        if not count:
            raise HeterogError(f"device_info: {device_info!r}; give 1 to 1024 devices, as 'cpu:2'")
        return _one_host([{"model": "CPU", "count": count}])
    if isinstance(device_info, dict):
        if "machines" not in device_info:
            raise HeterogError(
                "device_info: the dict has no 'machines'; it holds what a cluster file holds "
                "(docs/formats.md)"
            )
        header = {"format": "heterog-cluster", "version": 1, "name": "cluster"}
        return header | device_info
    if isinstance(device_info, (list, tuple)) and device_info:
        return _one_host([_device(entry) for entry in device_info])
    raise HeterogError(
        f"device_info: {device_info!r}; give the path of a cluster file, 'auto', 'cpu:2', a list of device "
        "models, or a dict as in a cluster file"
    )


def _device(entry) -> dict:
    if isinstance(entry, str):
        return {"model": entry}
    if isinstance(entry, dict) and isinstance(entry.get("model"), str):
        count = entry.get("count", 1)
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise HeterogError(f"device_info: {entry!r}: count is a number of devices, 1 or more")
        return entry
    raise HeterogError(
        f"device_info: {entry!r} is no device; give its model, as 'T4', or "
        "{'model': 'T4', 'count': 2}"
    )


def _one_host(devices: list[dict]) -> dict:
    machine: dict = {"name": "local", "devices": devices}
    if sum(device.get("count", 1) for device in devices) > 1:
        cpus = all(device["model"] == "CPU" for device in devices)
        machine["fabric"] = _CPU_FABRIC if cpus else _GPU_FABRIC
    return {"format": "heterog-cluster", "version": 1, "name": "local", "machines": [machine]}


def _given(path: Path, cache: Path) -> str:
    """A copy beside the data bases that hold for it: what was planned is what is run, and a plan
    that was made before is found again only while none of them has changed."""
    path = shipped(path)
    if not path.is_file():
        raise HeterogError(f"device_info: {path}: no such file")
    bases = {name: nearest(path, name) or installed(name) for name in _DATA_BASES}
    return _kept(read_bytes(path, MOST_GRAPH_BYTES), bases, cache)


def _kept(cluster: bytes, bases: dict[str, Path], cache: Path) -> str:
    """Files of one cluster in a folder of their own, named by what they hold."""
    most = MOST_GRAPH_BYTES
    files = {"cluster.json": cluster} | {name: read_bytes(base, most) for name, base in bases.items()}
    digest = hashlib.sha256(b"\0".join(files.values())).hexdigest()[:16]
    folder = make_entry_folder(cache / f"cluster-{digest}")
    for name, contents in files.items():
        kept(folder / name, contents)
    return str(folder / "cluster.json")
