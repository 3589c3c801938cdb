"""The command `python -m heterog.import_profile`: profiles of other planners as graphs with costs."""

import json
import sys
import tempfile
from pathlib import Path

from heterog.base.arguments import make_parser
from heterog.base.errors import HeterogError
from heterog.base.files import replace_file
from heterog.base.reading import MOST_GRAPH_BYTES, read_json
from heterog.base.run_verb import run_verb
from heterog.base.values import as_object, as_string, is_file_name, required, shown
from heterog.export.graph.writer import pack_graph
from heterog.profiles.layer_graph import read_partitioning, read_pipedream
from heterog.profiles.layer_step import LayerStep
from heterog.profiles.quickp import read_quickp

READERS = {"pipedream": read_pipedream, "partitioning": read_partitioning, "quickp": read_quickp}


def import_profile(source, format: str, batch: int, device: str, out, profile) -> LayerStep:
    """Writes the graph to `out` and, for the type of device `device` of the data base, its costs to
    `profile`: both for `heterog plan` and the other verbs."""
    name = Path(source).name.split(".")[0]
    if not is_file_name(name):
        raise HeterogError(f"{shown(source)}: the graph would be called {shown(name)}; give the file another name")
    step = LayerStep(READERS[format](source), name, batch)
    packed = pack_graph(step.graph)
    digest = _hash(packed, source)  # first, as it refuses what is no graph
    operators = []
    for op, seconds in step.seconds.items():
        line = {"fixed_seconds": 0.0, "seconds_per_sample": seconds / batch, "r2": 1.0}
        measured = {"samples": batch, "seconds": seconds, "spread_seconds": 0.0, "residual_seconds": 0.0}
        operators.append({"form": op, **line, "measured": [measured], "ops": [op]})
    costs = {"format": "heterog-profile", "version": 1, "graph": {"name": name, "hash": digest},
             "device": device, "machine": f"imported from {format}", "torch": "", "threads": 1,
             "repeat": 1, "slices": [batch], "finished": True, "links": [],
             "operators": operators}  # fmt: skip
    replace_file(out, packed)
    replace_file(profile, (json.dumps(costs) + "\n").encode())
    return step


def _hash(packed: bytes, source) -> str:
    """Of a graph's contents, as the program counts it: what a plan says that it was made for."""
    with tempfile.TemporaryDirectory() as folder:
        graph, cluster, plan = (Path(folder) / name for name in ("graph.json.gz", "cluster.json", "plan.json"))
        machine = {"name": "m", "devices": [{"model": "CPU", "memory_bytes": 1 << 50}], "nic": {"link": "10gbe-tcp"}}
        cluster.write_text(json.dumps({"format": "heterog-cluster", "version": 1, "name": "one",
                                       "machines": [machine]}))  # fmt: skip
        graph.write_bytes(packed)
        try:
            run_verb(["plan", "--graph", str(graph), "--cluster", str(cluster), "--batch", "1",
                      "--planner", "single", "--out", str(plan)])  # fmt: skip
        except HeterogError as error:
            raise HeterogError(f"{shown(source)}: it makes no graph that can be planned: {error}") from error
        made = as_object(read_json(plan, MOST_GRAPH_BYTES), "plan")
        return as_string(as_object(required(made, "graph", "plan"), "plan: graph").get("hash"), "plan: graph.hash")


def main(arguments: list[str] | None = None) -> int:
    parser = make_parser(
        prog="python -m heterog.import_profile",
        description="Writes a profile of another planner as a graph and its costs on one type of device.",
        epilog="example: python -m heterog.import_profile --format pipedream vgg16.graph.txt --batch 128 "
        "--device V100-PCIE-16GB --out vgg16.json.gz --profile vgg16.profile.json",
    )
    parser.add_argument("source", help="graph.txt of PipeDream, or a JSON graph of dnn-partitioning or QuickP")
    parser.add_argument("--format", choices=sorted(READERS), required=True)
    parser.add_argument("--batch", type=int, required=True, help="samples that it was profiled with")
    parser.add_argument("--device", required=True, help="a type of the device data base")
    parser.add_argument("--out", required=True, help="the graph (*.json.gz)")
    parser.add_argument("--profile", required=True, help="its costs (*.json)")
    options = parser.parse_args(arguments)
    if not 1 <= options.batch < 1 << 31:
        parser.error(f"--batch: {options.batch}, expected 1 to {(1 << 31) - 1}")
    try:
        step = import_profile(options.source, options.format, options.batch, options.device, options.out,
                              options.profile)  # fmt: skip
    except HeterogError as error:
        print(f"heterog: error: {error}", file=sys.stderr)
        return error.code
    parameters = sum(t["shape"][0] for t in step.graph["tensors"] if t["role"] == "parameter")
    print(f"{options.out}: {len(step.graph['ops'])} operators, {parameters:,} parameters, "
          f"{1e3 * sum(step.seconds.values()):.1f} ms at batch {options.batch}")  # fmt: skip
    return 0
