"""Damaged outputs: refused in one line, or read as something that a cluster file can hold."""

import json
import random
import re

import pytest
from discover_support import OUTPUTS, read_cluster, refused, text

from heterog.base.errors import HeterogError
from heterog.discover import command, nccl, network, smi_xml, topo
from heterog.discover.bases import data_bases
from heterog.discover.cluster import Choices, cluster_text
from heterog.discover.facts import Gpu, Machine
from heterog.discover.machine import machine_of

CASES = 100  # of each kind


def of_topology(damaged: str) -> Machine:
    topology = topo.read_topology(damaged)
    return Machine("m", [Gpu("NVIDIA GeForce RTX 3090") for _ in topology.paths], topology)


def of_peers(damaged: str) -> Machine:
    machine = of_topology(text("2-rtx-5090.topo.txt"))
    machine.peers = topo.read_peers(damaged)
    if len(machine.peers) != 2:
        raise HeterogError("as machine.py checks")
    return machine


def of_nccl(damaged: str) -> Machine:
    read = nccl.read_nccl_topology(damaged)
    for gpu in read.gpus:
        gpu.name = "NVIDIA L4"
    return Machine("m", read.gpus, read.topology, nics=read.nics)


def of_table(damaged: str) -> Machine:
    assert 0 < nccl.read_nccl_tests(damaged).bytes_per_second < 1e14
    return Machine("m")


KINDS = {
    ".topo.txt": of_topology,
    ".p2p.txt": of_peers,
    ".nccl.xml": of_nccl,
    ".nccl-tests.txt": of_table,
    ".ibstat.txt": lambda damaged: Machine("m", nics=network.read_ibstat(damaged)),
    ".xml": lambda damaged: Machine("m", smi_xml.read_smi_xml(damaged)),
}
WORDS = ["9" * 30, "-1", "x", "NaN", "\0", "é", "٣", "<", ">", '"', "\n", "GPU0 ", "\t", "0", "1e999"]
NUMBERS = ["0", "", "999999999999", "-5", "3.7", "abc"]


def damaged(whole: str, rng: random.Random) -> str:
    for _ in range(rng.randint(1, 4)):
        start = rng.randrange(len(whole) + 1)
        end = min(len(whole), start + rng.choice([1, 1, 3, 10, 60, 400]))
        how = rng.randrange(6)
        if how == 0:
            whole = whole[:start] + whole[end:]
        elif how == 1:
            whole = whole[:end] + whole[start:]
        elif how == 2:
            whole = whole[:start] + rng.choice(WORDS) + whole[end:]
        elif how == 3:
            lines = whole.splitlines(keepends=True)
            whole = "".join(lines[: start % (len(lines) + 1)] + lines[start % (len(lines) + 1) + 1 :])
        elif how == 4:
            whole = whole[:start]
        elif numbers := list(re.finditer(r"\d+", whole)):
            number = rng.choice(numbers)
            whole = whole[: number.start()] + rng.choice(NUMBERS) + whole[number.end() :]
    return whole


def check_cluster(machine: Machine) -> None:
    bases = data_bases(None)
    written = cluster_text([machine, Machine("n")], bases.devices, bases.bandwidths, Choices()).text
    for entry in read_cluster(written)["machines"]:
        for wire in ("fabric", "nic"):
            assert 0 < entry.get(wire, {}).get("bandwidth_bytes_per_second", 1) < 1e18


@pytest.mark.parametrize("kind", KINDS)
def test_outputs(kind):
    files = [path for path in sorted(OUTPUTS.iterdir()) if path.name.endswith(kind)]
    if kind == ".xml":
        files = [path for path in files if not path.name.endswith(".nccl.xml")]
    rng, read = random.Random(7), 0
    for _ in range(CASES):
        try:
            machine = KINDS[kind](damaged(rng.choice(files).read_text(), rng))
            check_cluster(machine)
            read += 1
        except HeterogError as refused:
            assert "\n" not in str(refused)
    assert 0 < read < CASES  # both happen


def test_collected_values_of_any_type():
    whole = {
        "format": "heterog-machine", "version": 1, "host": "h", "smi_xml": text("2-rtx-a5000.xml"),
        "topo": text("2-rtx-5090.topo.txt"), "p2p": text("2-rtx-5090.p2p.txt"),
        "cpu": {"model": "m", "sockets": 2, "processors": 4}, "memory_bytes": 1 << 34,
        "interfaces": [{"name": "e", "state": "up", "speed": "1000", "of_bond": False}],
        "infiniband": [{"name": "m", "port": "1", "state": "4: ACTIVE", "rate": "100 Gb/sec", "layer": "x"}],
    }  # fmt: skip
    check_cluster(machine_of(whole, "s"))
    odd = [None, 0, -1, 1e400, "x", [], {}, [1], {"a": 1}, True, 10**30]
    for key in whole:
        for value in odd:
            for target in (whole | {key: value}, whole | {"cpu": whole["cpu"] | {key: value}}):
                try:
                    check_cluster(machine_of(json.loads(json.dumps(target)), "s"))
                except HeterogError:
                    pass
    for key in ("cpu", "interfaces", "infiniband"):
        entries = whole[key] if isinstance(whole[key], list) else [whole[key]]
        for name in entries[0]:
            for value in odd:
                entry = entries[0] | {name: value}
                changed = whole | {key: [entry] if isinstance(whole[key], list) else entry}
                try:
                    check_cluster(machine_of(json.loads(json.dumps(changed)), "s"))
                except HeterogError:
                    pass


@pytest.mark.parametrize(
    "value",
    ["[" * 100_000, "[" * 900 + "]" * 900, "9" * 5000, "1" + "0" * 400, "1e999", "NaN", '"\\ud800"', "[[1], 2]"],
    ids=lambda value: value[:6],
)
@pytest.mark.parametrize("key", ["cpu", "memory_bytes", "host", "smi_xml", "interfaces"])
def test_extreme_values_are_one_line(key, value, tmp_path, capsys):
    (tmp_path / "host.json").write_text(f'{{"format": "heterog-machine", "version": 1, "{key}": {value}}}')
    said = refused(capsys, "--collected", tmp_path / "host.json")
    assert said.startswith(f"heterog: error: {tmp_path}/host.json: ") and said.count("\n") == 1 and len(said) < 500


def test_entries_of_data_bases_are_checked(tmp_path, capsys):
    """A card of the file beside the cluster file, from which another one is estimated."""
    for entry, wrong in (
        ({"fp32_flops_per_second": 0}, "devices[0].fp32_flops_per_second: expected a number from 1 to 1e+18, found 0"),
        ({"multiprocessors": []}, "devices[0].multiprocessors: expected a number from 1 to 1e+06, found an empty list"),
        ({"name": ["X"]}, "devices[0].name: expected a string, found a list"),
    ):
        figures = dict.fromkeys(("memory_bytes", "reserve_bytes", "fp32_flops_per_second", "half_flops_per_second",
                                 "memory_bytes_per_second"), 1e9)  # fmt: skip
        (tmp_path / "devices.json").write_text(json.dumps({"devices": [{"name": "X"} | figures | entry]}))
        assert command.main(["--gpus", "X", "--out", str(tmp_path / "c.json")]) == 2
        assert f"{tmp_path}/devices.json: {wrong}" in capsys.readouterr().err
        assert not (tmp_path / "c.json").exists()
