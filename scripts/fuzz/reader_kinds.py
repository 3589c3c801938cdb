"""What scripts/fuzz/readers.py feeds to Python's readers: whole files of every kind, how they are damaged,
and what reads them."""

import gzip
import hashlib
import json
import os
import random
import re
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from damage import damage_bytes, damage_json, damage_lines, damage_tensors, strip_comments

ROOT = Path(__file__).resolve().parents[2]
MACHINES = ROOT / "python/tests/machines"
TINY = ROOT / "models/lenet5-tiny.json.gz"

# ---------------------------------------------------------------------------------------- damage

# Where a value stood in a JSON text.
EXTREMES = [
    "[" * 100_000, "[" * 5000 + "]" * 5000, '{"a":' * 3000 + "1" + "}" * 3000, "9" * 5000, "1" + "0" * 400,
    "-" + "9" * 25, "1e999", "-1e999", "1e-999", "NaN", "-Infinity", "18446744073709551616", "0.1e1",
    "true", "null", '"\\ud800"', '"\\udfff\\ud800"', '"\\u0000"', '"' + "a" * 70_000 + '"', '"é\\n\\u001b[31m"',
    "[[], {}]", '{"a": 1, "a": 2}', '"9' + "9" * 4999 + '"', '"nan"', '"1_0"', '"٣"', '"²"', "[" + "[]," * 90_000 + "[]]",
    '"' + "\\\\\\\"" * 9000,
]  # fmt: skip
_VALUE = re.compile(r'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|true|false|null')
# Where a number or a word stood in what a command has printed.
WORDS = ["9" * 30, "9" * 5000, "-1", "x", "NaN", "\0", "é", "٣", "²", "<", ">", '"', "\n", "GPU0 ", "GPU9999999", "\t",
         "0", "1e999", "1" + "0" * 400, "a" * 70_000, " " * 70_000, "\n" * 200_000, "<a>" * 2000, "<pci>" * 2000,
         '<!DOCTYPE a [<!ENTITY b "' + "c" * 100 + '"><!ENTITY d "' + "&b;" * 100 + '">]>', "&d;", "Rank 1 on " * 5000,
         "NV12", "X", "[" * 3000, "[0.0; " * 5000, " -- " * 20_000, "\tnode1 -- node1\n", "\x1b[4m", "]]>", "slots=0"]  # fmt: skip
_WORD = re.compile(r"[0-9]+|[A-Za-z_]+")


def damage_extreme(text: str, rng: random.Random) -> str:
    places = list(_VALUE.finditer(text))
    for _ in range(rng.choice([1, 1, 2])):
        place = rng.choice(places)
        text = text[: place.start()] + rng.choice(EXTREMES) + text[place.end() :]
        places = [other for other in places if other.end() <= place.start()] or [place]
    return text


def damage_of_json(data: bytes, rng: random.Random) -> bytes:
    text = strip_comments(data.decode())
    how = rng.random()
    if how < 0.35:
        return damage_extreme(text, rng).encode()
    return damage_json(text, rng).encode() if how < 0.75 else damage_bytes(data, rng)


def damage_of_text(data: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.4:
        return damage_bytes(data, rng)
    text = data.decode("utf-8", "replace")
    for _ in range(rng.randint(1, 3)):
        places = list(_WORD.finditer(text))
        if not places:
            break
        place = rng.choice(places)
        text = text[: place.start()] + rng.choice([*WORDS, rng.choice(places).group()]) + text[place.end() :]
    return text.encode()


def damage_of_gzip(data: bytes, rng: random.Random) -> bytes:
    how = rng.random()
    if how < 0.15:
        return damage_bytes(data, rng)
    if how < 0.2:
        return gzip.compress(bytes(rng.choice([1, 200, 400]) << 20), 9)
    return gzip.compress(damage_of_json(gzip.decompress(data), rng), 1)


def damage_of_export(data: bytes, rng: random.Random) -> bytes:
    """An entry of the export cache: in half of the cases with the digest of what it then holds."""
    head, _, body = data.partition(b"\n")
    if rng.random() < 0.5:
        return damage_bytes(data, rng)
    size = int(head[-12:])
    step, rest = body[:size], body[size:]
    how = rng.random()
    if how < 0.1:
        step = zlib.compress(bytes(400 << 20), 9)
    elif how < 0.7:
        step = zlib.compress(damage_of_json(zlib.decompress(step), rng), 1)
    elif how < 0.85:
        step = damage_bytes(step, rng)
    else:
        rest = damage_tensors(rest, rng)
    size = len(step) if rng.random() < 0.95 else rng.choice([0, 1, len(step) + 1, 10**12 - 1])
    mark = head[: head.index(b" ", head.index(b" ") + 1) + 1]
    return mark + f"{hashlib.sha256(step + rest).hexdigest()} {size:012d}\n".encode() + step + rest


# ----------------------------------------------------------------------------------------- kinds


@dataclass
class Kind:
    """A kind of file: samples of it, how to damage one, and what reads it.

    `read` is called in the case's folder with the path of the damaged file, and ends as a command
    does. `place`: where the file is put, in a copy of the folder `beside`.
    """

    name: str
    samples: list[Path]
    damage: object
    read: object
    place: str = "damaged"
    beside: Path | None = None
    codes: tuple[int, ...] = (0, 2)
    outputs: tuple[str, ...] = ("out.json",)  # that are not there where it refuses


def answered(function) -> int:
    """What a script sees of a reader, as a command would say it."""
    from heterog.base.errors import HeterogError

    try:
        function()
    except HeterogError as error:
        print(f"heterog: error: {error}", file=sys.stderr)
        return error.code
    return 0


def discover(*words):
    from heterog.discover import command

    def read(file: Path) -> int:
        return command.main([word.format(file=file, folder=file.parent) for word in [*words, "--out", "{folder}/out.json"]])

    return read


def imported(format: str):
    from heterog.profiles import command as import_profile

    def read(file: Path) -> int:
        return import_profile.main([str(file), "--format", format, "--batch", "16", "--device", "CPU",
                                    "--out", "out.json", "--profile", "profile.json"])  # fmt: skip

    return read


def curves(file: Path) -> int:
    from heterog import training_curves

    return training_curves.main([str(file), "--page", "out.json"])


def shares(file: Path) -> int:
    from heterog.uneven.sampler import UnevenBatchSampler

    return answered(lambda: list(UnevenBatchSampler(100, file, 0)))


def measured_shares(file: Path) -> int:
    from heterog.uneven.kept_shares import Training, read_kept

    return answered(lambda: read_kept(file, Training(16, 1, 64, ("cpu", "cpu"), 1)))


def timings(file: Path) -> int:
    from heterog.profiles.timings import read_timings

    return answered(lambda: read_timings(file))


def ranks(file: Path) -> int:
    """What the ranks of a job say of their machines, one of them damaged."""
    from heterog.discover import hosts

    own = hosts.Rank(0, 0, 2)
    texts = [json.dumps(hosts.collect()), file.read_bytes().decode("utf-8", "replace")]
    hosts.exchange = lambda text, own: texts
    return answered(lambda: hosts.ask_ranks(own))


def constants(file: Path) -> int:
    from heterog.export.graph.writer import read_constants

    return answered(lambda: read_constants(file.with_name("graph.json.gz")))


def checkpoint(file: Path) -> int:
    from heterog.run.checkpoint import load_checkpoint

    return answered(lambda: load_checkpoint(file.with_name("c.safetensors")))


def export_entry(file: Path) -> int:
    """Gives what was put there, or nothing, but for a step that says itself that it is whole."""
    from heterog.export.cache import _read

    _read(file, (file.parent / "key").read_text())
    return 0


def make_entries(cache: Path):
    from heterog.export.graph.writer import read_graph
    from heterog.run.config import RunnerConfig
    from heterog.run.prepare import make_files

    step = SimpleNamespace(graph=read_graph(TINY), constants={})
    return make_files([step], "cpu:2", RunnerConfig(batch=8, cache=str(cache), planner="ev-ar"))


def cache_entry(file: Path) -> int:
    """The entry is made anew, whatever stands in its place; nothing that it leads to is touched."""
    folder = file.parent
    while not (folder / "entries.json").exists():
        folder = folder.parent
    victim = folder / "victim"
    victim.write_text("mine")
    rng = random.Random(file.read_bytes())
    how = rng.randrange(8)
    if how < 4:
        file.unlink()
        if how < 2:
            file.symlink_to(victim if how == 0 else folder / "nowhere")
        elif how == 2:
            os.mkfifo(file)
    code = answered(lambda: make_entries(folder))
    for name, digest in json.loads((folder / "entries.json").read_text()).items():
        found = folder / name
        if code == 0 and (found.is_symlink() or hashlib.sha256(found.read_bytes()).hexdigest() != digest):
            raise AssertionError(f"{name} was not made anew")
    if victim.read_text() != "mine" or (folder / "nowhere").exists():
        raise AssertionError("written through a link")
    return code


def make_base(base: Path) -> None:
    """The whole files that are damaged."""
    import torch

    import heterog
    from heterog.discover.collect import collect
    from heterog.run.checkpoint import Checkpoint, save_checkpoint

    torch.manual_seed(1)
    weights = torch.rand(20_000)  # too many to stand in the graph

    def loss_fn(model, x):
        return (model(x)[:, :1] * weights).sum(1).mean()

    model = torch.nn.Linear(4, 2)
    step = heterog.export_training_step(model, lambda batch: (torch.rand(batch, 4),), loss_fn,
                                        lambda p: torch.optim.AdamW(p), "net", cache=base / "export")  # fmt: skip
    entry, = (base / "export").glob("export-*.bin")
    key = re.search(rb'"key": "([^"]+)"', _step_of(entry.read_bytes()))
    (base / "export/key").write_text(key[1].decode())
    entry.rename(base / "export/e.bin")
    (base / "graph").mkdir()
    step.save(base / "graph/graph.json.gz")
    made = Checkpoint(model.state_dict(), {"state": {0: {"step": 3, "a": torch.ones(3)}},
                                           "param_groups": [{"lr": 0.1, "betas": (0.9, 0.99), "params": [0]}]}, 7,
                      {"x": torch.ones(2)}, {"seen": [1, 2.5, None], "t": torch.ones(2)})  # fmt: skip
    (base / "checkpoint").mkdir()
    save_checkpoint(base / "checkpoint/c.safetensors", made)
    for path in (base / "checkpoint").iterdir():
        path.write_bytes(_of_version_1(path.read_bytes()))
    said = collect() | {"smi_xml": (MACHINES / "2-rtx-a5000.xml").read_text(),
                        "topo": (MACHINES / "2-rtx-5090.topo.txt").read_text(),
                        "p2p": (MACHINES / "2-rtx-5090.p2p.txt").read_text(),
                        "interfaces": [{"name": "e", "state": "up", "speed": "25000", "of_bond": False}],
                        "infiniband": [{"name": "m", "port": "1", "state": "4: ACTIVE", "rate": "100 Gb/sec"}]}  # fmt: skip
    (base / "collected.json").write_text(json.dumps(said))
    (base / "hosts").write_text("one slots=1\nuser@two slots=3 # old\n10.0.0.7\n")
    (base / "shares.json").write_text(json.dumps({"format": "heterog-shares", "version": 1, "batch": 16,
                                                  "samples_per_rank": [9, 4, 3]}))  # fmt: skip
    ranks_of = [{"device": "cpu", "samples": samples, "even_samples": 8, "micro": None, "pass_seconds": 0.1,
                 "sample_seconds": 0.2, "most": None} for samples in (12, 4)]  # fmt: skip
    (base / "measured.json").write_text(json.dumps({
        "format": "heterog-measured-shares", "version": 1, "batch": 16, "accumulate": 1, "together": False,
        "gradient_bytes": 64,
        "even_seconds": 2.5, "step_seconds": 1.7, "predicted_seconds": 1.7, "all_reduce_seconds": 0.1,
        "ranks": ranks_of}))  # fmt: skip
    (base / "timings.json").write_text(json.dumps({
        "format": "heterog-ddp-timings", "version": 1, "gradient_bytes": 64, "all_reduce_seconds": 0.1, "update": True,
        "step_seconds": 0.5,
        "ranks": [{"device": "T4", "passes": [{"samples": 8, "seconds": 0.2}, {"samples": 4, "seconds": 0.1}]}] * 2}))
    cases = [{"case": f"m{i}", "mean_step_seconds": 0.2, "best_step_seconds": 0.1, "taught_step_seconds": 0.11,
              "baseline_step_seconds": 0.15} for i in range(2)]  # fmt: skip
    (base / "train.log").write_text("".join(
        json.dumps({"step": i, "evaluations": 4 * i, "mean_reward": -0.3, "entropy_nats": 1.2, "loss": 0.5,
                    "cases": cases}) + "\n" for i in range(1, 9)))  # fmt: skip
    (base / "pipedream.txt").write_text(_pipedream())
    nodes = [{"id": i, "name": f"n{i}", "fpgaLatency": 1.5 * i, "isBackwardNode": i > 4, "size": 4096.0,
              "colorClass": min(i, 9 - i)} for i in range(1, 9)]  # fmt: skip
    edges = [{"sourceId": i, "destId": i + 1, "size": 4096.0} for i in range(1, 8)]
    (base / "partitioning.json").write_text(json.dumps({"nodes": nodes, "edges": edges}))
    (base / "near").mkdir()
    for name in ("devices.json", "links.json"):
        (base / "near" / name).write_text(strip_comments((ROOT / "configs" / name).read_text()))
    make_entries(base / "cache")
    entries = [path for path in (base / "cache").rglob("*") if path.is_file() and path.suffix != ".lock"]
    digests = {str(path.relative_to(base / "cache")): hashlib.sha256(path.read_bytes()).hexdigest() for path in entries}
    (base / "cache/entries.json").write_text(json.dumps(digests))


def _of_version_1(data: bytes) -> bytes:
    """A file of a checkpoint as it was without checksums, which would answer for all other checks."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    del header["__metadata__"]["checksum"]
    if "heterog-checkpoint" in header["__metadata__"]:
        header["__metadata__"]["heterog-checkpoint"] = "1"
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


def _step_of(entry: bytes) -> bytes:
    head, _, body = entry.partition(b"\n")
    return zlib.decompress(body[: int(head[-12:])])


def _pipedream() -> str:
    figures = "forward_compute_time=1.500, backward_compute_time=3.000, activation_size=4096.000, parameter_size=2048.000"
    nodes = [f"node{i} -- Linear(in={i}) -- {figures}" for i in range(1, 6)]
    nodes[2] = nodes[2].replace("activation_size=4096.000", "activation_size=[4096.0; 1024.0]")
    edges = [f"\tnode{i} -- node{i + 1}" for i in range(1, 5)]
    return "\n".join([*nodes, *edges, "\tnode1 -- node3"]) + "\n"


def kinds(base: Path) -> list[Kind]:
    def machines(ending: str) -> list[Path]:
        found = [path for path in sorted(MACHINES.glob(f"*{ending}")) if ending != ".xml" or ".nccl." not in path.name]
        return [*found]

    cards = ["--gpus", "NVIDIA L4"]
    answer = ["--ssh", "sh -c 'cat {file}'"]
    whole = ["--ssh", f"sh -c 'cat {base}/collected.json'"]
    entries = sorted(path for path in (base / "cache").rglob("*") if path.is_file() and path.name != "entries.json")
    state, = (base / "checkpoint").glob("*.state")
    made = [
        Kind("smi.xml", machines(".xml"), damage_of_text, discover("--smi-xml", "{file}")),
        Kind("topo", machines(".topo.txt"), damage_of_text, discover("--topo", "{file}", *cards)),
        Kind("p2p", machines(".p2p.txt"), damage_of_text,
             discover("--topo", str(MACHINES / "2-rtx-5090.topo.txt"), "--p2p", "{file}", *cards)),
        Kind("nccl.xml", machines(".nccl.xml"), damage_of_text, discover("--nccl-topo", "{file}", *cards)),
        Kind("nccl-tests", machines(".nccl-tests.txt"), damage_of_text, discover("--nccl-tests", "{file}", *cards)),
        Kind("ibstat", machines(".ibstat.txt"), damage_of_text, discover("--ibstat", "{file}", *cards)),
        Kind("collected", [base / "collected.json"], damage_of_json,
             discover("--collected", f"{base}/collected.json", "{file}")),
        Kind("ssh", [base / "collected.json"], damage_of_json, discover("--hosts", "a,b", *answer), codes=(0, 2, 4)),
        Kind("hostfile", [base / "hosts"], damage_lines, discover("--hostfile", "{file}", *whole)),
        Kind("ranks", [base / "collected.json"], damage_of_json, ranks, outputs=()),
        Kind("devices", [base / "near/devices.json"], damage_of_json,
             discover("--card", "X:fp32=30,bandwidth=900,memory=24", "--gpus", "X:2"), "near/devices.json", base / "near"),
        Kind("links", [base / "near/links.json"], damage_of_json,
             discover("--topo", str(MACHINES / "8-rtx-3090.topo.txt"), "--gpus", "NVIDIA GeForce RTX 3090"),
             "near/links.json", base / "near"),
        Kind("pipedream", [base / "pipedream.txt"], damage_of_text, imported("pipedream"),
             outputs=("out.json", "profile.json")),
        Kind("partitioning", [base / "partitioning.json"], damage_of_json, imported("partitioning"),
             outputs=("out.json", "profile.json")),
        Kind("shares", [base / "shares.json"], damage_of_json, shares),
        Kind("measured shares", [base / "measured.json"], damage_of_json, measured_shares),
        Kind("timings", [base / "timings.json", base / "measured.json"], damage_of_json, timings),
        Kind("train.log", [base / "train.log"], damage_of_log, curves),
        Kind("graph", [base / "graph/graph.json.gz"], damage_of_gzip, constants, "graph/graph.json.gz", base / "graph"),
        Kind("constants", [base / "graph/graph.constants.safetensors"], damage_tensors, constants,
             "graph/graph.constants.safetensors", base / "graph"),
        Kind("checkpoint", [base / "checkpoint/c.safetensors"], damage_tensors, checkpoint, "checkpoint/c.safetensors",
             base / "checkpoint"),
        Kind("state", [state], damage_tensors, checkpoint, f"checkpoint/{state.name}", base / "checkpoint"),
        Kind("export", [base / "export/e.bin"], damage_of_export, export_entry, "export/e.bin", base / "export"),
    ]  # fmt: skip
    return made + [Kind("cache", [path], lambda data, rng: damage_bytes(data, rng) + b"\0", cache_entry,
                        f"cache/{path.relative_to(base / 'cache')}", base / "cache", codes=(0,)) for path in entries]  # fmt: skip


def damage_of_log(data: bytes, rng: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    at = rng.randrange(len(lines))
    lines[at] = damage_of_json(lines[at].rstrip(), rng) + rng.choice([b"\n", b"\n", b""])
    return b"".join(lines)
