"""Descriptions of machines: outputs that others published (machines/README.md) become cluster files
that plan takes."""

import re

import pytest
from discover_support import OUTPUTS, described, plan, refused, text

from heterog.base.errors import HeterogError
from heterog.discover import nccl, network, smi_xml, topo
from heterog.discover.bases import data_bases
from heterog.discover.cards import device_type
from heterog.discover.fabric import best_ring, fabric_of, islands_of
from heterog.discover.facts import Gpu, Machine, Nic, Topology
from heterog.discover.links import network_card

SWITCH, SOCKETS = {"kind": "switch"}, {"kind": "sockets"}
TOPOLOGIES = [
    ("dgx1-v100", "Tesla V100-SXM2-16GB", SWITCH | {"link": "nvlink2-x2"}),
    ("8-a100-nvswitch", "NVIDIA A100-SXM4-40GB", SWITCH | {"link": "nvlink3"}),
    ("hgx-h100", "NVIDIA H100 80GB HBM3", SWITCH | {"link": "nvlink4"}),
    # Six links to each of three neighbours: two thirds of 18 times 25 GB/s.
    ("4-h100-nv6", "NVIDIA H100 80GB HBM3", SWITCH | {"link": "nvlink3", "bandwidth_bytes_per_second": 300e9}),
    ("8-gpus-two-sockets", "GeForce GTX 1080 Ti", SOCKETS | {"link": "pcie3", "socket_link": "pcie3-sockets"}),
    ("2-p100", "Tesla P100-PCIE-16GB", SOCKETS | {"link": "pcie3", "socket_link": "pcie3-sockets"}),
    ("8-rtx-3090", "NVIDIA GeForce RTX 3090", SOCKETS | {"link": "pcie4-staged", "socket_link": "pcie4-staged"}),
    # All paths are SYS; the NUMA nodes tell the sockets.
    ("8-rtx-4090", "NVIDIA GeForce RTX 4090", SOCKETS | {"link": "pcie4-staged", "socket_link": "pcie4-staged"}),
    # Two thirds of three links of 14.0625 GB/s.
    ("2-rtx-3090-loose-bridge", "NVIDIA GeForce RTX 3090",
     SWITCH | {"link": "nvlink3", "bandwidth_bytes_per_second": 28.12e9}),
    ("4-a10g", "NVIDIA A10G", SWITCH | {"link": "pcie4"}),
    ("2-rtx-5090", "NVIDIA GeForce RTX 5090", SWITCH | {"link": "pcie5-staged"}),
]  # fmt: skip


@pytest.mark.parametrize("name, card, fabric", TOPOLOGIES, ids=[entry[0] for entry in TOPOLOGIES])
def test_topologies_become_fabrics_that_plan_takes(name, card, fabric, tmp_path):
    cluster = described(tmp_path, "--topo", OUTPUTS / f"{name}.topo.txt", "--gpus", card)
    (machine,) = cluster["machines"]
    count = len(topo.read_topology(text(f"{name}.topo.txt")).paths)
    assert machine["devices"] == [{"model": device_type(card), "count": count}]
    assert machine["fabric"] == fabric
    planned = plan(tmp_path)
    assert 0 < planned["predicted"]["step_seconds"] < 1


def test_mixed_cards_in_the_order_of_the_bus(tmp_path, capsys):
    cluster = described(tmp_path, "--topo", OUTPUTS / "5090-and-4090.topo.txt", "--gpus",
                        "NVIDIA GeForce RTX 5090:2,NVIDIA GeForce RTX 4090:3")  # fmt: skip
    (machine,) = cluster["machines"]
    assert machine["devices"] == [{"model": "RTX-5090", "count": 2}, {"model": "RTX-4090", "count": 3}]
    # One card on one processor and four on the other are no halves.
    assert machine["fabric"] == {"kind": "switch", "link": "pcie4-staged"}
    said = capsys.readouterr().err
    assert "2 NUMA nodes (1 + 4)" in said and "CUDA_DEVICE_ORDER=PCI_BUS_ID" in said
    assert "NVLinks join GPUs 0 and 2, 1 and 3" not in said
    plan(tmp_path, "cp-ar")


def test_what_does_not_fit_the_format_is_said(tmp_path, capsys):
    several = described(tmp_path, "--topo", OUTPUTS / "4-rtx-3090-bridges.topo.txt", "--gpus",
                        "NVIDIA GeForce RTX 3090", "--count", "2")  # fmt: skip
    assert [machine["fabric"]["link"] for machine in several["machines"]] == ["pcie4-staged"] * 2
    assert "NVLinks join GPUs 0 and 2, 1 and 3, but no ring of all" in capsys.readouterr().err
    described(tmp_path, "--topo", OUTPUTS / "dgx1-v100.topo.txt", "--gpus", "Tesla V100-SXM2-32GB")
    assert "20 pairs of cards have fewer or none" in capsys.readouterr().err
    # The comments of the file say it, too, and where figures are from.
    written = (tmp_path / "c.json").read_text()
    assert "// from dgx1-v100.topo.txt" in written and "// every port has the figure of a ring of 2" in written


# Of a box whose cards bridges of NVLink join in pairs: the cards of each pair, NVLink's two thirds of
# 4 times 14.0625 or 12 times 25 GB/s, and what joins the pairs.
PAIRS = [
    ("4-rtx-3090-bridges", "NVIDIA GeForce RTX 3090", 2, 37.5e9, "pcie4-staged", "CUDA_VISIBLE_DEVICES=0,2,1,3"),
    ("8-a100-pcie", "NVIDIA A100 80GB PCIe", 4, 200e9, "pcie4-sockets", "0, 1; 2, 3; 4, 5; 6, 7, and not all"),
]


@pytest.mark.parametrize("name, card, pairs, bandwidth, wire, said", PAIRS, ids=[entry[0] for entry in PAIRS])
def test_cards_that_bridges_join_in_pairs(name, card, pairs, bandwidth, wire, said, tmp_path, capsys):
    cluster = described(tmp_path, "--topo", OUTPUTS / f"{name}.topo.txt", "--gpus", card)
    assert said in capsys.readouterr().err
    machines = cluster["machines"]
    assert [machine["name"] for machine in machines] == [f"machine-{number}" for number in range(pairs)]
    links = data_bases(None).links
    for machine in machines:
        assert machine["devices"] == [{"model": device_type(card), "count": 2}]
        fabric = machine["fabric"]
        assert fabric["kind"] == "switch" and fabric["link"].startswith("nvlink")
        assert fabric.get("bandwidth_bytes_per_second", links[fabric["link"]]["bandwidth_bytes_per_second"]) == bandwidth
        # A hop takes the latency of two cards, and that of a network, of which there is none.
        assert machine["nic"]["link"] == wire
        assert 2 * machine["nic"]["latency_seconds"] == pytest.approx(links[wire]["latency_seconds"])
    assert "network" not in cluster
    planned = plan(tmp_path)
    assert 0 < planned["predicted"]["step_seconds"] < 1


def test_measured_links_and_other_networks_leave_a_machine_whole(tmp_path):
    given = ["--topo", OUTPUTS / "4-rtx-3090-bridges.topo.txt", "--gpus", "NVIDIA GeForce RTX 3090"]
    assert len(described(tmp_path, *given, "--nic", "25")["machines"]) == 1
    timed = described(tmp_path, *given, "--nccl-tests", OUTPUTS / "4-rtx-4090.nccl-tests.txt")
    assert len(timed["machines"]) == 1


def test_islands_of_nvlinks():
    pairs = topo.read_topology(text("4-rtx-3090-bridges.topo.txt"))
    assert islands_of(pairs) == [[0, 2], [1, 3]]
    assert islands_of(topo.read_topology(text("hgx-h100.topo.txt"))) == []  # one of all
    assert islands_of(topo.read_topology(text("4-a10g.topo.txt"))) == []  # none
    # Three in a row close no ring.
    chain = Topology([["X", "NV1", "SYS", "SYS"], ["NV1", "X", "NV1", "SYS"], ["SYS", "NV1", "X", "SYS"],
                      ["SYS", "SYS", "SYS", "X"]], [None] * 4)  # fmt: skip
    assert islands_of(chain) == []
    # Where halves in their order are joined, a fabric of two sockets says so, of any number of machines.
    machine = Machine("box", [Gpu("NVIDIA GeForce RTX 3090")] * 4, pairs).with_gpus([0, 2, 1, 3])
    fabric = fabric_of(machine, data_bases(None).bandwidths)
    assert (fabric.kind, fabric.link.bandwidth, fabric.socket_link.kind) == ("sockets", 37.5e9, "pcie4-staged")


def test_rings_of_nvlinks():
    mesh = topo.read_topology(text("dgx1-v100.topo.txt")).paths
    assert best_ring(mesh) == 2
    four = [row[:4] for row in mesh[:4]]  # 0-3, 3-2, 2-1 have two links, 1-0 has one
    assert best_ring(four) == 1
    assert best_ring([["X", "NV4"], ["NV4", "X"]]) == 4
    chain = [["X", "NV1", "SYS"], ["NV1", "X", "NV1"], ["SYS", "NV1", "X"]]
    assert best_ring(chain) == 0
    assert best_ring(topo.read_topology(text("8-a100-pcie.topo.txt")).paths) == 0


def test_topologies_are_read_whatever_parts_their_columns():
    tabs = topo.read_topology(text("hgx-h100.topo.txt"))
    assert tabs.paths[0] == ["X"] + ["NV18"] * 7
    assert tabs.numa == [0] * 4 + [1] * 4
    spaces = topo.read_topology(text("8-a100-nvswitch.topo.txt"))
    assert spaces.numa == [3, 3, 1, 1, 7, 7, 5, 5]
    assert topo.read_topology(text("8-a100-pcie.topo.txt")).numa == [0] * 4 + [1] * 4
    assert topo.read_topology(text("2-rtx-3090-loose-bridge.topo.txt")).numa == [None, None]
    assert topo.read_topology(text("2-p100.topo.txt")).paths == [["X", "SYS"], ["SYS", "X"]]
    underlined = "\t\x1b[4mGPU0\tGPU1\tCPU Affinity\x1b[0m\nGPU0\t X \tPIX\t0-3\nGPU1\tPIX\t X \t0-3\n"
    assert topo.read_topology(underlined).paths == [["X", "PIX"], ["PIX", "X"]]


@pytest.mark.parametrize("damage, message", [
    (lambda rows: rows[:1], "no row of a GPU"),
    (lambda rows: rows[:1] + rows[2:], "row GPU1 stands where GPU0 should"),
    (lambda rows: [row.replace("NV2     SYS     SYS     NODE", "SYS     SYS     NODE") for row in rows],
     "contradict"),
    (lambda rows: [row[:40] for row in rows], "entries of 8"),
    (lambda rows: [row.replace("NV1", "N1") for row in rows], "'N1'"),
])  # fmt: skip
def test_damaged_topologies_are_refused(damage, message):
    rows = text("dgx1-v100.topo.txt").splitlines()
    with pytest.raises(HeterogError, match=message):
        topo.read_topology("\n".join(damage(rows)))


def test_xml_of_three_drivers():
    (a10g,) = smi_xml.read_smi_xml(text("a10g.xml"))
    assert a10g == Gpu("NVIDIA A10G", 23028 << 20, pcie_generation=4, pcie_width=8)
    (a100,) = smi_xml.read_smi_xml("Last login: today\n" + text("a100-mig.xml"))
    assert (a100.name, a100.memory_bytes, a100.slices) == ("NVIDIA A100-SXM4-80GB", 81920 << 20, 4)
    assert smi_xml.read_smi_xml(text("2-rtx-a5000.xml")) == [Gpu("NVIDIA RTX A5000", 24564 << 20, 4, 16)] * 2
    slot = text("2-rtx-a5000.xml").replace("<max_host_link_gen>4", "<max_host_link_gen>3")
    assert smi_xml.read_smi_xml(slot)[0].pcie_generation == 3
    with pytest.raises(HeterogError, match="nvidia-smi -q -x"):
        smi_xml.read_smi_xml("NVIDIA-SMI has failed")


def test_a_cloud_machine_of_half_a_slot(tmp_path):
    four = re.sub(r"(\s*<gpu .*</gpu>)", lambda found: found.group(1) * 4, text("a10g.xml"), flags=re.DOTALL)
    (tmp_path / "smi.xml").write_text(four)
    cluster = described(tmp_path, "--smi-xml", tmp_path / "smi.xml", "--topo", OUTPUTS / "4-a10g.topo.txt",
                        "--count", 2, "--nic", 25)  # fmt: skip
    first, second = cluster["machines"]
    assert first["devices"] == [{"model": "A10G", "count": 4}]  # 23028 MiB are those of a card of 24 GiB
    half = 24.4e9 / 2
    assert first["fabric"] == {"kind": "switch", "link": "pcie4", "bandwidth_bytes_per_second": half}
    assert first["nic"] == second["nic"] == {"link": "25gbe-tcp"}
    assert first["name"] != second["name"]
    assert cluster["network"] == {"latency_seconds": 10e-6}
    plan(tmp_path)


def test_slices_of_mig_are_no_devices(tmp_path, capsys):
    cut = text("a100-mig.xml")
    (tmp_path / "cut.xml").write_text(cut)
    assert "MIG cuts every GPU up" in refused(capsys, "--smi-xml", tmp_path / "cut.xml")
    whole = cut[cut.index("\t<gpu ") :].replace("Enabled", "Disabled").replace("</nvidia_smi_log>", "")
    (tmp_path / "one.xml").write_text(cut.replace("</nvidia_smi_log>", whole + "</nvidia_smi_log>"))
    cluster = described(tmp_path, "--smi-xml", tmp_path / "one.xml")
    assert cluster["machines"][0]["devices"] == [{"model": "A100-SXM4-80GB"}]
    assert "left out: GPU 0" in capsys.readouterr().err


def test_peer_access_is_what_the_driver_says(tmp_path):
    topology = ["--topo", OUTPUTS / "2-rtx-5090.topo.txt", "--gpus", "NVIDIA GeForce RTX 5090"]
    none = described(tmp_path, *topology, "--p2p", OUTPUTS / "2-rtx-5090.p2p.txt")
    assert none["machines"][0]["fabric"]["link"] == "pcie5-staged"
    (tmp_path / "ok.txt").write_text(text("2-rtx-5090.p2p.txt").replace("GNS\t", "OK\t"))
    peers = described(tmp_path, *topology, "--p2p", tmp_path / "ok.txt")
    assert peers["machines"][0]["fabric"]["link"] == "pcie5"


def test_what_crosses_between_processors(tmp_path):
    """The first half of the devices holds the odd one; a port may be slower than what joins sockets."""

    def fabric(sockets: list[int], width: int = 16) -> dict:
        count = len(sockets)
        one = re.search(r"\s*<gpu .*?</gpu>", text("2-rtx-a5000.xml"), re.DOTALL).group()
        one = one.replace("<current_link_width>16x", f"<current_link_width>{width}x")
        (tmp_path / "smi.xml").write_text("<nvidia_smi_log>" + one * count + "</nvidia_smi_log>")
        paths = [["X" if i == j else "NODE" if sockets[i] == sockets[j] else "SYS" for j in range(count)]
                 for i in range(count)]  # fmt: skip
        (tmp_path / "topo.txt").write_text("\n".join(f"GPU{i} {' '.join(row)}" for i, row in enumerate(paths)))
        given = ["--smi-xml", tmp_path / "smi.xml", "--topo", tmp_path / "topo.txt"]
        return described(tmp_path, *given)["machines"][0]["fabric"]

    assert fabric([0, 0, 1]) == {"kind": "sockets", "link": "pcie4", "socket_link": "pcie4-sockets"}
    assert fabric([0, 1, 1]) == {"kind": "switch", "link": "pcie4-sockets"}
    assert fabric([0, 1, 0, 1]) == {"kind": "switch", "link": "pcie4-sockets"}
    # Eight lanes of sixteen: 12.2 GB/s, less than the 20 between the sockets.
    assert fabric([0, 1], width=8) == {
        "kind": "sockets", "link": "pcie4", "bandwidth_bytes_per_second": 12.2e9,
        "socket_bandwidth_bytes_per_second": 12.2e9}  # fmt: skip
    plan(tmp_path)


def test_topologies_of_nccl(tmp_path):
    flat = nccl.read_nccl_topology(text("6-rtx-4090.nccl.xml"))
    assert flat.topology.paths[0] == ["X"] + ["PHB"] * 5 and flat.topology.numa == [None] * 6
    assert flat.gpus[0] == Gpu("", 0, pcie_generation=4, pcie_width=16)
    two = nccl.read_nccl_topology(text("2-of-8-h100.nccl.xml"))
    assert two.topology.paths == [["X", "NV18"], ["NV18", "X"]] and two.topology.numa == [1, 1]
    assert two.nics == [Nic("mlx5_5", 400, rdma=True)]
    without = re.sub(r"\s*<nvlink[^>]*>", "", text("2-of-8-h100.nccl.xml"))
    assert nccl.read_nccl_topology(without).topology.paths[0][1] == "PHB"
    below_one = re.sub(r'</pci>\s*<pci busid="0000:d7[^>]*>', "", without)
    assert nccl.read_nccl_topology(below_one).topology.paths[0][1] == "PIX"
    cluster = described(tmp_path, "--nccl-topo", OUTPUTS / "2-of-8-h100.nccl.xml", "--gpus", "NVIDIA H100 80GB HBM3")
    assert cluster["machines"][0]["nic"] == {"link": "100gbe-rdma", "bandwidth_bytes_per_second": 4 * 12.1e9}
    assert plan(tmp_path)["cluster"]["name"] == "c"


def test_direct_nvlinks_in_a_topology_of_nccl():
    direct = text("2-of-8-h100.nccl.xml")
    for target in ("08", "06", "07"):
        direct = re.sub(rf'\s*<nvlink target="0000:{target}[^>]*>', "", direct)
    one, other = direct.split('<gpu dev="7"')
    one = one.replace('"0000:05:00.0" count="4" tclass="0x068000"', '"0000:d9:00.0" count="3" tclass="0x030200"')
    other = other.replace('"0000:05:00.0" count="4" tclass="0x068000"', '"0000:b8:00.0" count="3" tclass="0x030200"')
    assert nccl.read_nccl_topology(one + '<gpu dev="7"' + other).topology.paths[0][1] == "NV3"


def test_tables_of_nccl_tests(tmp_path):
    four = nccl.read_nccl_tests(text("4-rtx-4090.nccl-tests.txt"))
    assert (four.gpus, four.hosts, four.bytes_per_second, four.size) == (4, 1, 25.95e9, 1 << 30)
    eight = nccl.read_nccl_tests(text("8-a100.nccl-tests.txt"))  # the better of both columns
    assert (eight.gpus, eight.bytes_per_second) == (0, 230.81e9)
    hosts_of = nccl.read_nccl_tests(text("2-hosts.nccl-tests.txt"))
    assert (hosts_of.gpus, hosts_of.hosts, hosts_of.bytes_per_second) == (2, 2, 1.01e9)
    by_mpirun = "".join(f"[1,0]<stdout>:{line}\n" for line in text("4-rtx-4090.nccl-tests.txt").splitlines())
    assert nccl.read_nccl_tests(by_mpirun) == four
    with pytest.raises(HeterogError, match="all_gather_perf"):
        nccl.read_nccl_tests(text("4-rtx-4090.nccl-tests.txt").replace("all_reduce", "all_gather"))
    with pytest.raises(HeterogError, match="no row"):
        nccl.read_nccl_tests("\n".join(text("8-a100.nccl-tests.txt").splitlines()[:4]))
    topology = ["--topo", OUTPUTS / "8-a100-nvswitch.topo.txt", "--gpus", "NVIDIA A100-SXM4-40GB"]
    cluster = described(tmp_path, *topology, "--nccl-tests", OUTPUTS / "8-a100.nccl-tests.txt")
    assert cluster["machines"][0]["fabric"]["bandwidth_bytes_per_second"] == 230.8e9
    assert "measured by all_reduce_perf" in (tmp_path / "c.json").read_text()
    between = ["--nccl-tests", OUTPUTS / "2-hosts.nccl-tests.txt"]
    two = described(tmp_path, *topology, "--count", 2, *between)
    assert [machine["nic"]["bandwidth_bytes_per_second"] for machine in two["machines"]] == [1.01e9] * 2
    assert two["machines"][0]["fabric"] == {"kind": "switch", "link": "nvlink3"}
    inside = ["--nccl-tests", OUTPUTS / "8-a100.nccl-tests.txt"]
    both = described(tmp_path, *topology, "--count", 2, *between, *inside)["machines"][1]
    assert [both[wire]["bandwidth_bytes_per_second"] for wire in ("fabric", "nic")] == [230.8e9, 1.01e9]


def test_ports_of_ibstat():
    assert network.read_ibstat(text("roce-200.ibstat.txt")) == [Nic("mlx5_0", 200, True), Nic("mlx5_1", 200, True)]
    assert network.read_ibstat(text("fdr.ibstat.txt")) == [Nic("mlx4_0", 56, True, infiniband=True)]
    assert network.read_ibstat(text("hdr.ibstat.txt")) == [Nic("mlx5_7", 200, True, infiniband=True)]
    with pytest.raises(HeterogError, match="no port"):
        network.read_ibstat("ibstat: command not found")


def figures(*nics: Nic) -> dict:
    return network_card(list(nics), data_bases(None).bandwidths)[0].figures()


def test_network_cards_become_links():
    assert figures(Nic("eth0", 10, False)) == {"link": "10gbe-tcp"}
    assert figures(Nic("eth0", 1, False)) == {"link": "10gbe-tcp", "bandwidth_bytes_per_second": 0.115e9}
    assert figures(Nic("eth0", 400, False)) == {"link": "100gbe-tcp"}
    assert figures(Nic("eth0", 200, False), Nic("mlx5_0", 25, True)) == {"link": "25gbe-rdma"}
    assert figures(*network.read_ibstat(text("fdr.ibstat.txt"))) == {"link": "infiniband-fdr"}
    two = figures(*network.read_ibstat(text("roce-200.ibstat.txt")))
    assert two == {"link": "100gbe-rdma", "bandwidth_bytes_per_second": 2 * 24.2e9,
                   "device_bandwidth_bytes_per_second": 24.2e9}  # fmt: skip


def test_what_the_system_says_of_cards():
    port = {"name": "mlx5_0", "state": "4: ACTIVE", "rate": "100 Gb/sec (4X EDR)", "layer": "Ethernet"}
    wires = [{"name": "eth0", "state": "up", "speed": "25000", "of_bond": False},
             {"name": "eth1", "state": "down", "speed": "-1", "of_bond": False},
             {"name": "eth2", "state": "up", "speed": "-1", "of_bond": False}]  # fmt: skip
    assert network.nics_of({"interfaces": wires}, "s") == [Nic("eth0", 25, False)]
    assert network.nics_of({"interfaces": wires, "infiniband": [port]}, "s") == [Nic("mlx5_0", 100, True)]
    assert network.nics_of({"interfaces": wires, "infiniband": [port | {"state": "1: DOWN"}]}, "s")[0].name == "eth0"


def test_a_card_of_an_endless_name_is_one_short_line(tmp_path, capsys):
    (tmp_path / "smi.xml").write_text(text("2-rtx-a5000.xml").replace("RTX A5000", "RTX " + "9" * 4000, 1))
    said = refused(capsys, "--smi-xml", tmp_path / "smi.xml")
    assert "product_name is 'NVIDIA RTX 999" in said and "of over 100 characters" in said
    assert said.count("\n") == 1 and len(said) < 400


def test_unknown_cards_and_mixed_up_outputs_are_refused(tmp_path, capsys):
    assert "--card 'Nothing-1:" in refused(capsys, "--gpus", "NVIDIA Nothing 1:2")
    assert "no card" not in refused(capsys, "--topo", OUTPUTS / "4-a10g.topo.txt")
    said = refused(capsys, "--smi-xml", OUTPUTS / "2-rtx-a5000.xml", "--topo", OUTPUTS / "4-a10g.topo.txt")
    assert "2 GPUs by name, 4 in topo -m" in said
    assert "give one of them" in refused(capsys, "--hosts", "a", "--gpus", "NVIDIA L4")
    assert "--count" in refused(capsys, "--hosts", "a", "--count", 2)
    assert "--measure" in refused(capsys, "--gpus", "NVIDIA L4:2", "--measure")
    assert "3 names for 4 GPUs" in refused(capsys, "--topo", OUTPUTS / "4-a10g.topo.txt", "--gpus", "NVIDIA L4:3")
    assert "--nic 'fast'" in refused(capsys, "--gpus", "NVIDIA L4", "--nic", "fast")
    assert "No such file" in refused(capsys, "--topo", "nowhere.txt", "--gpus", "NVIDIA L4")
