"""This machine, machines over ssh, machines of ranks, and device_info="auto"."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from discover_support import described, plan, read_cluster, refused, text

from heterog.base.errors import HeterogError
from heterog.discover import auto, hosts, measure
from heterog.discover.bases import data_bases
from heterog.discover.cluster import Choices, cluster_text
from heterog.discover.collect import collect
from heterog.discover.facts import Machine, Nic
from heterog.discover.machine import machine_of


@pytest.fixture
def smi(tmp_path, monkeypatch):
    """A machine of two RTX A5000 behind a driver of its own."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "nvidia-smi"
    topology = text("2-rtx-5090.topo.txt")
    peers = text("2-rtx-5090.p2p.txt").replace("GNS", "OK")
    script.write_text(
        f"#!{sys.executable}\nimport sys\n"
        f"print({{'-q': {text('2-rtx-a5000.xml')!r}, '-m': {topology!r}, '-p2p': {peers!r}}}"
        "[sys.argv[1] if sys.argv[1] == '-q' else sys.argv[2]])\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return folder


def test_this_machine_with_gpus(smi, tmp_path):
    cluster = described(tmp_path)
    (machine,) = cluster["machines"]
    assert machine["devices"] == [{"model": "RTX-A5000", "count": 2}]
    assert machine["fabric"] == {"kind": "switch", "link": "pcie4"}
    assert machine["host_memory_bytes"] > 0
    plan(tmp_path)


def test_this_machine_without_gpus(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    cluster = described(tmp_path, "--cpus", 3, "--name", "mine")
    assert cluster["name"] == "mine"
    (entry,) = cluster["machines"][0]["devices"]
    assert (entry["model"], entry["count"]) == ("CPU", 3)
    assert entry["memory_bytes"] == collect()["memory_bytes"] // 3
    assert len(plan(tmp_path)["cluster"]["hash"]) == 16


@pytest.fixture
def ssh(tmp_path):
    """In place of ssh: it takes a host's name and runs the command here; `down` cannot be reached."""
    script = tmp_path / "fake-ssh"
    script.write_text('#!/bin/sh\n[ "$1" = down ] && { echo "ssh: no route to down" >&2; exit 255; }\n'
                      'echo "Welcome to $1"\nshift\nexec "$@"\n')  # fmt: skip
    script.chmod(0o755)
    return str(script)


def test_hosts_over_ssh(smi, ssh, tmp_path, capsys):
    (tmp_path / "hosts").write_text("# two\nme@gpu1 slots=2\n\ngpu2 slots=2 # the second\ngpu2 slots=1\n")
    cluster = described(tmp_path, "--hostfile", tmp_path / "hosts", "--ssh", ssh)
    assert [machine["name"] for machine in cluster["machines"]] == ["gpu1", "gpu2"]
    assert all(machine["devices"] == [{"model": "RTX-A5000", "count": 2}] for machine in cluster["machines"])
    assert plan(tmp_path)["predicted"]["step_seconds"] > 0
    again = described(tmp_path, "--hosts", "gpu1,gpu2", "--ssh", ssh, "--nic", "40gbe-rdma")
    assert again["machines"][1]["nic"] == {"link": "40gbe-rdma"} and again["network"]["latency_seconds"] == 3e-6
    assert "no route to down" in refused(capsys, "--hosts", "gpu1,down", "--ssh", ssh)
    assert "no name of a host" in refused(capsys, "--hosts=-oProxyCommand=x", "--ssh", ssh)


def test_ssh_takes_no_host_for_an_option(smi, tmp_path, monkeypatch, capsys):
    script = tmp_path / "bin/ssh"
    script.write_text('#!/bin/sh\n[ "$3" = -- ] || exit 9\nshift 4\nexec "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    (machine,) = described(tmp_path, "--hosts", "gpu1")["machines"]
    assert machine["name"] == "gpu1"
    (tmp_path / "hosts").write_text("gpu1\n-oProxyCommand=touch${IFS}x slots=1\n")
    said = refused(capsys, "--hostfile", tmp_path / "hosts")
    assert f"{tmp_path}/hosts:2: '-oProxyCommand=touch${{IFS}}x' is no name of a host" in said


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("# the rack\nbig slots=4\n\n  small\tslots=1  # old\r\n10.0.0.7\n", ["big", "small", "10.0.0.7"]),
        ("a slots=2\nb slots=1\na slots=3", ["a", "b"]),
        ("a\nb slots=0\n", "hosts:2: the slots of b"),
        ("a slots=two", "hosts:1: the slots of a"),
        ("a slots=" + "9" * 5000, "hosts:1: the slots of a"),
        ("a slots=1000\na slots=1000", "hosts:2: the slots of a"),
        ("a gpus=2", "hosts:1: 'gpus=2' behind the host"),
        ("\na slots=2 b", "hosts:2: 'b' behind the host"),
        ("slots=2", "hosts:1: 'slots=2' is no name"),
        ("# none\n", "hosts: names no host"),
    ],
)
def test_hostfiles_are_read_as_the_program_reads_them(text, found, tmp_path):
    """tests/launch/hostfile_test.cc has the same."""
    (tmp_path / "hosts").write_bytes(text.encode())
    if isinstance(found, list):
        assert hosts.read_hostfile(str(tmp_path / "hosts")) == found
    else:
        with pytest.raises(HeterogError) as wrong:
            hosts.read_hostfile(str(tmp_path / "hosts"))
        assert found in str(wrong.value)


def test_a_host_that_prints_without_end_is_ended(capsys):
    said = refused(capsys, "--hosts", "a", "--ssh", "sh -c yes")
    assert "it printed more than 8388608 bytes" in said and said.count("\n") == 1


def test_what_was_collected_elsewhere(smi, tmp_path):
    """By the script alone, without the package."""
    script = Path(hosts.__file__).parent / "collect.py"
    printed = subprocess.run([sys.executable, "-I", "-"], stdin=open(script), capture_output=True, check=True)
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(json.dumps(json.loads(printed.stdout) | {"host": name}))
    cluster = described(tmp_path, "--collected", tmp_path / "a.json", tmp_path / "b.json")
    assert [machine["name"] for machine in cluster["machines"]] == ["a", "b"]


def test_ranks_describe_their_hosts(tmp_path):
    """Two processes of one machine: a CPU device each, and the link between them timed."""
    environment = os.environ | {"PATH": f"{os.path.dirname(sys.executable)}:/usr/bin:/bin"}
    command_line = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m",
                    "heterog.discover", "--measure", "--out", str(tmp_path / "c.json")]  # fmt: skip
    done = subprocess.run(command_line, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (machine,) = read_cluster((tmp_path / "c.json").read_text())["machines"]
    if machine["devices"][0]["model"] == "CPU":
        assert machine["devices"][0]["count"] == 2
    assert machine["fabric"]["kind"] == "switch" and "link" not in machine["fabric"]
    assert 1e6 < machine["fabric"]["bandwidth_bytes_per_second"] < 1e12
    assert "measured: 2 ranks by" in (tmp_path / "c.json").read_text()
    plan(tmp_path)


def test_auto_takes_a_device_a_rank(monkeypatch, smi):
    machine = machine_of(collect(), "here")
    machine.gpus[1].name = "NVIDIA L4"

    def models(count: int, visible: str | None) -> list[str]:
        found = hosts.RankMachines([machine.with_gpus([0, 1])], [count], [visible])
        monkeypatch.setattr(auto, "own_rank", lambda: hosts.Rank(0, 0, 2))
        monkeypatch.setattr(auto, "ask_ranks", lambda own: found)
        cluster = read_cluster(auto.auto_cluster(ranks=True))
        return [entry["model"] for entry in cluster["machines"][0]["devices"]]

    assert models(1, None) == ["RTX-A5000"]
    assert models(2, None) == ["RTX-A5000", "L4"]
    assert models(1, "1") == ["L4"]
    assert models(2, "1,0") == ["L4", "RTX-A5000"]
    assert models(2, "1") == ["RTX-A5000", "L4"]  # each rank sees its own alone
    with pytest.raises(HeterogError, match="3 ranks on 2 GPUs"):
        models(3, None)


def test_auto_takes_what_the_process_sees(monkeypatch, smi):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    (entry,) = read_cluster(auto.auto_cluster(ranks=False))["machines"][0]["devices"]
    assert entry == {"model": "RTX-A5000"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1234")
    with pytest.raises(HeterogError, match="CUDA_VISIBLE_DEVICES"):
        auto.auto_cluster(ranks=False)


def test_auto_without_gpus_is_a_cpu_a_rank(monkeypatch):
    monkeypatch.setattr(auto, "own_rank", lambda: hosts.Rank(0, 0, 5))
    found = hosts.RankMachines([Machine("a"), Machine("b")], [2, 3], [None, None])
    monkeypatch.setattr(auto, "ask_ranks", lambda own: found)
    machines = read_cluster(auto.auto_cluster(ranks=True))["machines"]
    assert [machine["devices"][0]["count"] for machine in machines] == [2, 3]


def test_places_of_ranks(monkeypatch):
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_STEP_ID", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_PROCID", "1")
    monkeypatch.setenv("SLURM_LOCALID", "1")
    monkeypatch.setenv("SLURM_NTASKS", "4")
    assert hosts.own_rank() is None  # a batch script, no step
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    assert hosts.own_rank() == hosts.Rank(1, 1, 4)
    monkeypatch.setenv("SLURM_NTASKS", "1")
    assert hosts.own_rank() is None


def test_one_rank_of_each_host_speaks_for_it(monkeypatch):
    said = {"host": "a", "boot": "b"}
    monkeypatch.setattr(hosts, "identity", lambda: said)
    monkeypatch.setattr(hosts, "exchange", lambda text, own: [text, json.dumps(said)])
    with pytest.raises(HeterogError, match="'a': none of its ranks has LOCAL_RANK 0") as wrong:
        hosts.ask_ranks(hosts.Rank(1, 1, 2))
    assert wrong.value.code == 2


def test_timed_links_become_figures(tmp_path):
    # A tree of eight: launch and six hops. 65 = launch + 6 · latency, 15 = launch + latency.
    eight = measure._wire(measure.Group(8, 5e9, 65e-6, 15e-6), cuda=True, source="x")
    assert (eight.latency, eight.launch) == (pytest.approx(10e-6), pytest.approx(5e-6))
    two = measure._wire(measure.Group(2, 1e9, 15e-6, 15e-6), cuda=False, source="x")
    assert (two.bandwidth, two.latency, two.launch) == (1e9, 15e-6, 0)
    # One rank of each machine sent, over one of its two cards.
    machines = [Machine(name, nics=[Nic("a", 100, True), Nic("b", 100, True)]) for name in ("m", "n")]
    for machine in machines:
        machine.measured_fabric, machine.measured_nic = two, measure.Wire(9e9, 4e-6, 0.0, "timed")
    bases = data_bases(None)
    cluster = cluster_text(machines, bases.devices, bases.bandwidths, Choices(cpus=2))
    (first, _) = read_cluster(cluster.text)["machines"]
    assert first["fabric"] == {"kind": "switch", "bandwidth_bytes_per_second": 1e9, "latency_seconds": 15e-6}
    assert first["nic"] == {"bandwidth_bytes_per_second": 18e9, "latency_seconds": 4e-6,
                            "device_bandwidth_bytes_per_second": 9e9}  # fmt: skip
    (tmp_path / "c.json").write_text(cluster.text)
    plan(tmp_path)


def test_names_of_others_stay_inside_comments(tmp_path):
    nic = Nic('eth0\n"x": 1, \u2028 // /', 10, False)
    machines = [Machine("../m\n{", nics=[nic]), Machine(".m/\u00e9", nics=[nic])]
    bases = data_bases(None)
    cluster = cluster_text(machines, bases.devices, bases.bandwidths, Choices())
    assert [m["name"] for m in read_cluster(cluster.text)["machines"]] == ["-m-{", "m--"]
    (tmp_path / "c.json").write_text(cluster.text)
    plan(tmp_path)
    alike = [Machine(name, nics=[nic]) for name in ("a", "a", "a-2", "a")]
    cluster_text(alike, bases.devices, bases.bandwidths, Choices())
    assert [machine.name for machine in alike] == ["a", "a-2", "a-2-2", "a-3"]


def test_names_of_clusters(tmp_path, capsys):
    for name in ("a/b", "", ".a", "a\nb"):
        assert "--name" in refused(capsys, "--gpus", "NVIDIA L4", "--name", name)
