"""The command `python -m heterog.discover`, or `heterog discover`."""

import argparse
import re
import sys
from pathlib import Path

from heterog.base.arguments import make_parser as new_parser
from heterog.base.errors import HeterogError
from heterog.base.files import replace_file
from heterog.base.values import is_file_name, number_in, shown, whole_in
from heterog.discover.bases import DataBases, data_bases, with_cards
from heterog.discover.cards import estimated, parse_card
from heterog.discover.cluster import Choices, ClusterText, cluster_text
from heterog.discover.collect import collect
from heterog.discover.facts import Machine, Nic
from heterog.discover.hosts import ask_hosts, ask_ranks, own_rank, read_hostfile
from heterog.discover.links import Link, card_link
from heterog.discover.machine import Outputs, machine_of, machine_of_files, read_collected, read_output
from heterog.discover.measure import measure
from heterog.discover.nccl import read_nccl_tests
from heterog.discover.parts import parts_of

_FILES = {
    "smi_xml": "nvidia-smi -q -x",
    "topo": "nvidia-smi topo -m",
    "p2p": "nvidia-smi topo -p2p r",
    "nccl_topo": "the file that NCCL_TOPO_DUMP_FILE names",
    "ibstat": "ibstat",
}


def make_parser() -> argparse.ArgumentParser:
    parser = new_parser(
        prog="heterog discover",
        description="Writes a cluster file (docs/discover.md) of this machine, of machines reached over ssh, of "
        "the hosts of the ranks that run it (torchrun, Slurm, mpirun), or of one whose outputs are given as files.",
        epilog="examples: heterog discover --out cluster.json · heterog discover --hosts gpu1,gpu2 --out cluster.json "
        "· heterog discover --topo topo.txt --gpus 'NVIDIA GeForce RTX 3090:8' --out cluster.json",
    )
    parser.add_argument("--out", required=True, help="the cluster file (*.json); - for stdout")
    parser.add_argument("--name", help="of the cluster (default: that of the file)")
    hosts = parser.add_argument_group("machines, if not this one")
    hosts.add_argument("--hosts", action="append", metavar="HOSTS",
                       help="names, by commas: each is asked over ssh, by its python3; nothing is installed; may be "
                       "given again for more")  # fmt: skip
    hosts.add_argument("--hostfile", help="HOST slots=N, one a line")
    hosts.add_argument("--ssh", default="ssh -o BatchMode=yes", help="how they are reached (%(default)s)")
    hosts.add_argument("--collected", nargs="+", metavar="FILE",
                       help="what python/heterog/discover/collect.py printed, a file a machine")  # fmt: skip
    files = parser.add_argument_group("one machine by what commands printed there")
    for key, what in _FILES.items():
        files.add_argument(f"--{key.replace('_', '-')}", metavar="FILE", help=what)
    files.add_argument("--gpus", action="append", metavar="GPUS",
                       help="names of its cards where no file has them: 'NVIDIA L4:4,NVIDIA A10'; may be given "
                       "again for more")  # fmt: skip
    files.add_argument("--count", type=int, default=1, help="so many machines like it (1)")
    said = parser.add_argument_group("what is said comes before what is found")
    said.add_argument("--nic", help="what joins the machines: a kind of links.json, or Gb/s of Ethernet")
    said.add_argument("--nccl-tests", metavar="FILE", action="append", default=[],
                      help="output of all_reduce_perf: bandwidth inside a machine, or between machines, if it "
                      "ran on several; may be given twice")  # fmt: skip
    said.add_argument("--cpus", type=int, help="CPU devices of a machine without GPUs")
    said.add_argument("--card", action="append", default=[], metavar="NAME:FIGURES",
                      help="of a card that devices.json lacks: 'X:fp32=30,fp16=120,bandwidth=900,memory=24,sms=80' "
                      "(TFLOP/s, GB/s, GiB; also tf32, fp64, cache in MiB, like=CARD)")  # fmt: skip
    said.add_argument("--split", metavar="PARTS",
                      help="take the one GPU as several devices, by their multiprocessors: 64,32,24,8")
    said.add_argument("--measure", action="store_true",
                      help="time all-reduces and messages, here or by the ranks, by gloo or NCCL")  # fmt: skip
    return parser


def main(arguments: list[str] | None = None) -> int:
    parser = make_parser()
    options = parser.parse_args(arguments)
    for name in ("count", "cpus"):
        value = getattr(options, name)
        if value is not None and not 1 <= value <= 1024:
            parser.error(f"--{name}: {value}, expected 1 to 1024")
    try:
        return _run(options)
    except HeterogError as error:
        print(f"heterog: error: {error}", file=sys.stderr)
        return error.code


def _run(options) -> int:
    out = None if options.out == "-" else Path(options.out)
    bases = data_bases(out)
    cards = [estimated(*parse_card(text), bases.devices) for text in options.card]
    bases.devices |= {card["name"]: card for card in cards}
    own = own_rank() if not _elsewhere(options) else None
    choices = _choices(options, bases, out)
    ranks = None
    if own is not None:
        found = ask_ranks(own)
        machines, ranks = found.machines, found.ranks
        for machine, count in zip(machines, ranks, strict=True):
            machine.cpus = count
    else:
        machines = _machines(options)
    if options.measure:
        if _elsewhere(options):
            raise HeterogError("--measure: it times this machine, or those of the ranks that run it (torchrun)")
        measure(machines, choices, own, ranks)
    if own is not None and own.rank != 0:
        return 0
    cluster = cluster_text(machines, bases.devices, bases.bandwidths, choices)
    if cards and out is None:
        raise HeterogError("--card: its figures go into a devices.json beside the cluster file; give --out FILE")
    beside = with_cards(cards, out) if cards and out is not None else None
    _write(cluster, out)
    for card in cards:
        print(f"{card['name']}: {card['source']}", file=sys.stderr)
    if beside is not None:
        replace_file(*beside)
        print(f"{beside[0]}: {', '.join(card['name'] for card in cards)}", file=sys.stderr)
    return 0


def _elsewhere(options) -> bool:
    """Whether machines are named, or given by files."""
    given = [options.hosts, options.hostfile, options.collected, options.gpus]
    return any(given) or any(getattr(options, key) for key in _FILES)


def _machines(options) -> list[Machine]:
    outputs = Outputs(**{key: getattr(options, key) for key in _FILES})
    by_files = options.gpus or any(vars(outputs).values())
    ways = [way for way, given in (("--hosts", options.hosts), ("--hostfile", options.hostfile),
                                   ("--collected", options.collected), ("outputs as files", by_files)) if given]  # fmt: skip
    if len(ways) > 1:
        raise HeterogError(f"{' and '.join(ways)}: give one of them")
    if options.count > 1 and not by_files:
        raise HeterogError("--count: it is of a machine that is given by files")
    if options.hosts:
        return ask_hosts([host for host in ",".join(options.hosts).split(",") if host], options.ssh)
    if options.hostfile:
        return ask_hosts(read_hostfile(options.hostfile), options.ssh)
    if options.collected:
        return [read_collected(path) for path in options.collected]
    if by_files:
        names = _names(",".join(options.gpus or []))
        return [machine_of_files(outputs, names, "machine") for _ in range(options.count)]
    return [machine_of(collect(), "this machine")]


def _names(text: str) -> list[str]:
    """'NVIDIA L4:4,NVIDIA A10': five names."""
    names: list[str] = []
    for part in (part.strip() for part in text.split(",") if part.strip()):
        name, colon, count = part.rpartition(":")
        cards = whole_in(count, 1024)
        if colon and not cards:
            raise HeterogError(f"--gpus {shown(part)}: {shown(count)} is no number of cards, 1 to 1024")
        names += [name] * (cards or 1) if colon else [part]
    return names


def _choices(options, bases: DataBases, out: Path | None) -> Choices:
    stem = re.sub(r"[^\x20-\x7e]|[/\\]", "-", out.stem).lstrip(".") if out is not None else ""
    name = stem[:100] or "discovered" if options.name is None else options.name
    if not is_file_name(name):
        raise HeterogError(f"--name {shown(name)}: give 1 to 100 printable characters, no slashes, no dot in front")
    latencies = {kind: link.get("latency_seconds", 0.0) for kind, link in bases.links.items()}
    choices = Choices(name=name, cpus=options.cpus, latencies=latencies)
    if options.split is not None:
        choices.split = parts_of(options.split)
    if options.nic is not None:
        choices.nic = _nic(options.nic, bases)
    for path in options.nccl_tests:
        _take_nccl_tests(path, choices)
    return choices


def _nic(text: str, bases: DataBases) -> Link:
    if text in bases.links:
        return Link(text, "as said: --nic")
    gbits = number_in(text) or 0.0
    if not 1e-3 <= gbits < 1e5:
        raise HeterogError(f"--nic {shown(text)}: give Gb/s of Ethernet, or one of {', '.join(bases.links)}")
    return card_link(Nic("--nic", gbits, False), bases.bandwidths)


def _take_nccl_tests(path: str, choices: Choices) -> None:
    measured = read_nccl_tests(read_output(path), path)
    where = f"{measured.gpus} GPUs" if measured.gpus else "GPUs"
    source = f"measured by all_reduce_perf on {where}: {measured.size / 1e6:.4g} MB, {Path(path).name}"
    if measured.hosts > 1:
        choices.nic = Link("100gbe-rdma", f"{source}, {measured.hosts} machines", measured.bytes_per_second)
    else:
        choices.fabric = Link("nvlink3", source, measured.bytes_per_second)


def _write(cluster: ClusterText, out: Path | None) -> None:
    if out is None:
        print(cluster.text, end="")
    else:
        replace_file(out, cluster.text.encode())
        print(f"{out}: {', '.join(cluster.models)}", file=sys.stderr)
    for remark in cluster.remarks:
        print(f"note: {remark}", file=sys.stderr)
