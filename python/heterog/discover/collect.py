"""What a machine says of itself, as JSON on stdout: raw outputs, read by nobody here.

A file of its own that needs Python 3.6 and nothing else, so that it can be piped to another machine:
`ssh host python3 - < collect.py > host.json`.
"""

import glob
import json
import os
import re
import socket
import subprocess

COMMANDS = {
    "smi_xml": ["nvidia-smi", "-q", "-x"],
    "topo": ["nvidia-smi", "topo", "-m"],
    "p2p": ["nvidia-smi", "topo", "-p2p", "r"],
}
# A driver that wakes its cards up takes tens of seconds.
PATIENCE = 180


def collect():
    """Everything under the keys of COMMANDS is text as printed, empty where the command is absent or
    fails."""
    said = {"format": "heterog-machine", "version": 1}
    said.update(identity())
    for key, command in COMMANDS.items():
        said[key] = output(command)
    said["cpu"] = cpu()
    said["memory_bytes"] = memory_bytes()
    said["interfaces"] = interfaces()
    said["infiniband"] = infiniband()
    return said


def identity():
    """Containers of different machines may have one name, and one machine has containers of many."""
    return {"host": socket.gethostname(), "boot": read("/proc/sys/kernel/random/boot_id")}


def output(command):
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=PATIENCE,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:  # an interface that is down refuses to say its speed
        return ""


def cpu():
    text = read("/proc/cpuinfo")
    names = re.findall(r"^model name\s*:\s*(.*)$", text, re.MULTILINE)
    return {
        "model": names[0] if names else "",
        "sockets": len(set(re.findall(r"^physical id\s*:\s*(\d+)", text, re.MULTILINE))) or 1,
        "processors": len(os.sched_getaffinity(0)),
    }


def memory_bytes():
    """Of the machine, or what a container may take of it."""
    found = re.search(r"^MemTotal:\s*(\d+) kB", read("/proc/meminfo"), re.MULTILINE)
    total = int(found.group(1)) * 1024 if found else 0
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        limit = read(path)
        if limit.isdigit() and 0 < int(limit) < total:
            return int(limit)
    return total


def interfaces():
    """Of the network cards: those that stand on a bus, and bonds of them."""
    found = []
    for folder in sorted(glob.glob("/sys/class/net/*")):
        bonded = os.path.isdir(os.path.join(folder, "bonding"))
        if not bonded and not os.path.exists(os.path.join(folder, "device")):
            continue
        found.append(
            {
                "name": os.path.basename(folder),
                "state": read(os.path.join(folder, "operstate")),
                "speed": read(os.path.join(folder, "speed")),  # Mb/s; -1 where it is virtual
                "of_bond": os.path.exists(os.path.join(folder, "bonding_slave")),
            }
        )
    return found


def infiniband():
    """Of the ports of RDMA cards, RoCE and InfiniBand: what ibstat reads, too."""
    found = []
    for folder in sorted(glob.glob("/sys/class/infiniband/*/ports/*")):
        parts = folder.split("/")
        found.append(
            {
                "name": parts[4],
                "port": parts[6],
                "state": read(os.path.join(folder, "state")),  # "4: ACTIVE"
                "rate": read(os.path.join(folder, "rate")),  # "200 Gb/sec (4X HDR)"
                "layer": read(os.path.join(folder, "link_layer")),
            }
        )
    return found


if __name__ == "__main__":
    print(json.dumps(collect()))
