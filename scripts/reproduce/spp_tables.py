"""SPP's Table III and the shapes of its Figures 6 to 11 on our simulator, beside the paper's figures
(docs/results/spp.md).

    scripts/reproduce.sh spp_tables [table figures] [--program build/release/bin/heterog]

In the table every planner gets the paper's number of micro-batches; a gain is (baseline - SPP) / SPP.
"DP" is even data parallelism by all-reduce in the best of three orders, whole or, where that does
not fit, in the paper's micro-batches. PipeDream is its synchronous form. "best" is what `plan` finds,
free to take any number of micro-batches.

The figures take BERT-large in micro-batches of 6 on 8 servers of 4 V100 (configs/clusters/spp-sim.json)
and change one thing at a time. In Figure 10 that is the size of what goes from layer to layer and
nothing else, which no real model allows: there BERT-large is a profile of 27 layers, as in the paper,
imported as such profiles are (python -m heterog.import_profile).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from pipelines import ROOT, machine

# Model, micro-batches, samples in one, the paper's seconds: SPP, DP, GPipe, PipeDream, HetPipe.
TABLE = {
    "spp-a": [
        ("vgg19", 8, 32, 1.799, 2.882, 2.120, 1.949, 2.696),
        ("resnet152", 4, 4, 0.732, 0.896, 1.214, None, 0.843),
        ("inception_v3", 8, 32, 0.303, 0.420, 0.551, 0.656, 0.408),
        ("transformer6", 8, 32, 0.640, 0.944, 1.234, 1.118, 0.766),
        ("bert_large24", 4, 4, 0.409, 0.524, 0.472, 0.421, 0.525),
        ("xlnet_large24", 4, 4, 1.299, 1.388, 1.696, 1.384, 1.628),
        ("bert_large48", 4, 4, 0.762, None, 1.885, 1.266, 1.377),
    ],
    "spp-b": [
        ("vgg19", 8, 32, 0.983, 1.245, 1.004, 1.024, None),
        ("resnet152", 4, 4, 0.832, 1.209, 1.041, 0.873, None),
        ("inception_v3", 8, 32, 0.357, 0.663, 0.587, 0.919, None),
        ("transformer6", 8, 32, 1.065, 2.533, 1.487, 1.830, None),
        ("bert_large24", 4, 4, 0.952, 2.269, 1.665, 1.084, None),
        ("xlnet_large24", 4, 4, 1.437, 1.842, 1.720, 1.690, None),
        ("bert_large48", 4, 2, 0.855, 1.656, 1.199, 1.160, None),
    ],
}  # fmt: skip
PAPER = ("SPP", "DP", "GPipe", "PipeDream", "HetPipe")


# Of BERT-large: what a layer holds, in parameters. The time of a layer goes by what it multiplies:
# the table of words is looked up in at the bottom and multiplied at the top, where it is not counted
# as parameters again.
WORDS, WIDTH, TOKENS, LAYERS = 30522, 1024, 288, 24
TRANSFORMER = 12 * WIDTH**2 + 13 * WIDTH
TOP = 2 * (WIDTH**2 + WIDTH)


class Planning:
    def __init__(self, program, folder, words=()):
        self.program = program
        self.folder = Path(folder)
        self.words = words  # of every call

    def seconds(self, model, batch, cluster, planner, *words):
        """Of a step, or None if nothing fits."""
        out = self.folder / "plan.json"
        out.unlink(missing_ok=True)
        cluster = cluster if isinstance(cluster, Path) else self.cluster(cluster)
        graph = model if isinstance(model, Path) else ROOT / "models" / f"{model}.json.gz"
        command = [self.program, "plan", "--graph", graph, "--cluster", cluster, "--batch", batch,
                   "--planner", planner, "--out", out, *self.words, *words]  # fmt: skip
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if done.returncode not in (0, 3) and "fits in memory" not in done.stderr:
            sys.exit(f"{model} {planner}: {done.stderr.strip()}")
        if not out.exists():
            return None
        predicted = json.loads(out.read_text())["predicted"]
        return predicted["step_seconds"] if predicted["feasible"] else None

    @staticmethod
    def cluster(name):
        return ROOT / "configs" / "clusters" / f"{name}.json"

    def data_parallel(self, model, batch, cluster, micro_batches):
        orders = ("rank", "rank-queued", "fifo")
        for words in ((), ("--accumulate", micro_batches)):
            found = [
                seconds
                for order in orders[: 1 if words else 3]
                if (seconds := self.seconds(model, batch, cluster, f"ev-ar:order={order}", *words))
            ]
            if found:
                return min(found)
        return None

    def all(self, model, micro_batches, samples, cluster):
        """SPP, DP, GPipe, PipeDream, HetPipe."""
        batch = micro_batches * samples
        given = f"micro_batches={micro_batches}"
        return (
            self.seconds(model, batch, cluster, f"spp:form=paper,{given}"),
            self.data_parallel(model, batch, cluster, micro_batches),
            self.seconds(model, batch, cluster, f"gpipe:{given}"),
            self.seconds(model, batch, cluster, f"pipedream:{given}"),
            self.seconds(model, batch, cluster, f"hetpipe:{given}"),
        )


def cell(seconds):
    return "-" if seconds is None else f"{seconds:.3f}"


def gain(base, spp):
    return "" if base is None or spp is None else f"{100 * (base / spp - 1):+.0f} %"


def row(name, values, best=""):
    cells = [f"{cell(value):>7} {gain(value, values[0]) if i else '':>7}"
             for i, value in enumerate(values)]  # fmt: skip
    print(f"{name:28} " + " ".join(cells) + f"  {best}", flush=True)


def print_table(planning):
    for cluster, cases in TABLE.items():
        print(f"SPP Table III on {cluster}, seconds a step and SPP's gain over each")
        print(f"{'model (micro-batches)':28} " + " ".join(f"{name:>15}" for name in PAPER) + "  best")
        for model, micro_batches, samples, *paper in cases:
            values = planning.all(model, micro_batches, samples, cluster)
            best = planning.seconds(model, micro_batches * samples, cluster, "portfolio")
            row(f"{model} ({micro_batches} x {samples})", values, cell(best))
            row("  paper", paper)
        print()


def read_cluster(name):
    lines = Planning.cluster(name).read_text().splitlines()
    return json.loads("\n".join(line for line in lines if not line.lstrip().startswith("//")))


def variant(planning, name, change):
    """spp-sim with something changed, as a file of its own."""
    cluster = read_cluster("spp-sim")
    change(cluster)
    cluster["name"] = name
    file = planning.folder / f"{name}.json"
    file.write_text(json.dumps(cluster))
    return file


def nic_of(gigabits):
    def change(cluster):
        for machine in cluster["machines"]:
            machine["nic"]["bandwidth_bytes_per_second"] = gigabits * 1.25e8

    return change


def servers_of(*counts):
    """The fastest servers first; so many devices on each."""

    def change(cluster):
        kept = cluster["machines"][::-1][: len(counts)]
        for machine, count in zip(kept, counts, strict=True):
            machine["devices"][0]["count"] = count
        cluster["machines"] = kept

    return change


def layers_of_bert(planning, devices, factor):
    """BERT-large as 27 layers in PipeDream's format, imported: the graph, and its costs on each of
    the devices, on all of them those of the first: a file each. What goes between layers is `factor`
    times what it is."""
    alone = planning.folder / "alone.json"
    machine = {"name": "m", "devices": [{"model": devices[0]}], "nic": {"link": "10gbe-tcp"}}
    alone.write_text(json.dumps({"format": "heterog-cluster", "version": 1, "name": "alone",
                                 "machines": [machine]}))  # fmt: skip
    seconds = planning.seconds("bert_large24", 6, alone, "single")
    # Parameters and what is multiplied: the bottom, the transformers, the top, the words.
    layers = [(WORDS * WIDTH, 0), *[(TRANSFORMER, TRANSFORMER)] * LAYERS, (TOP, TOP),
              (0, WORDS * WIDTH)]  # fmt: skip
    all_multiplied = sum(multiplied for _, multiplied in layers)
    lines = []
    for i, (parameters, multiplied) in enumerate(layers):
        milliseconds = 1e3 * seconds * multiplied / all_multiplied
        output = factor * 6 * TOKENS * WIDTH * 4 if i + 1 < len(layers) else 4
        lines.append(f"node{i} -- Layer() -- forward_compute_time={milliseconds / 3:.6f}, "
                     f"backward_compute_time={milliseconds * 2 / 3:.6f}, "
                     f"activation_size={output:.1f}, parameter_size={4 * parameters:.1f}")  # fmt: skip
    lines += [f"\tnode{i} -- node{i + 1}" for i in range(len(layers) - 1)]
    source = planning.folder / f"bert27x{factor}.graph.txt"
    source.write_text("\n".join(lines) + "\n")
    graph = planning.folder / f"bert27x{factor}.json.gz"
    costs = planning.folder / f"bert27x{factor}.profile.json"
    environment = os.environ | {"PYTHONPATH": str(ROOT / "python"),
                                "HETEROG_BIN": str(planning.program)}  # fmt: skip
    done = subprocess.run([sys.executable, "-m", "heterog.import_profile", "--format", "pipedream",
                           str(source), "--batch", "6", "--device", devices[0], "--out", str(graph),
                           "--profile", str(costs)],
                          capture_output=True, text=True, env=environment)  # fmt: skip
    if done.returncode:
        sys.exit(f"{source.name}: {done.stderr.strip()}")
    files = []
    for device in devices:
        files.append(planning.folder / f"{device}.profile.json")
        files[-1].write_text(json.dumps(json.loads(costs.read_text()) | {"device": device}))
    return graph, files


def print_figure10(planning):
    machines = read_cluster("spp-sim")["machines"]
    devices = sorted({device["model"] for machine in machines for device in machine["devices"]})
    print(f"\nFigure 10: what goes between layers, in times of what it is, 32 micro-batches\n{'':28} "
          + " ".join(f"{name:>15}" for name in PAPER))  # fmt: skip
    for factor in (1, 2, 4, 8):
        graph, costs = layers_of_bert(planning, devices, factor)
        words = [word for file in costs for word in ("--profile", file)]
        of_layers = Planning(planning.program, planning.folder, words)
        row(str(factor), of_layers.all(graph, 32, 6, "spp-sim"))


def print_figures(planning):
    def figure(title):
        print(f"{title}\n{'':28} " + " ".join(f"{name:>15}" for name in PAPER))

    figure("Figure 6: micro-batches of 6 samples, BERT-large, 32 GPUs")
    for micro_batches in (8, 16, 32):
        row(str(micro_batches), planning.all("bert_large24", micro_batches, 6, "spp-sim"))
    figure("\nFigure 7: Gb/s between servers, 32 micro-batches")
    for gigabits in (5, 10, 40, 100):
        file = variant(planning, f"spp-sim-{gigabits}g", nic_of(gigabits))
        row(str(gigabits), planning.all("bert_large24", 32, 6, file))
    figure("\nFigure 8: GPUs of each server, 32 micro-batches")
    for counts in ((2,) * 6, (4,) * 3, (8,)):
        file = variant(planning, f"spp-sim-{len(counts)}x{counts[0]}", servers_of(*counts))
        row(f"{len(counts)} x {counts[0]}", planning.all("bert_large24", 32, 6, file))
    figure("\nFigure 9: layers of BERT-large, 32 micro-batches")
    for layers in (24, 48):
        row(str(layers), planning.all(f"bert_large{layers}", 32, 6, "spp-sim"))
    print_figure10(planning)
    print("\nFigure 11: stages of spp:form=paper, 32 micro-batches, seconds a step")
    for stages in range(1, 12):
        seconds = planning.seconds("bert_large24", 192, "spp-sim",
                                   f"spp:form=paper,micro_batches=32,stages={stages}")  # fmt: skip
        print(f"{stages:>4} {cell(seconds)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("parts", nargs="*", default=["table", "figures"],
                        help="table, figures, or figure10 alone")  # fmt: skip
    parser.add_argument("--program", type=Path,
                        default=ROOT / "build" / "release" / "bin" / "heterog")  # fmt: skip
    options = parser.parse_args()
    parts = {"table": print_table, "figures": print_figures, "figure10": print_figure10}
    unknown = [part for part in options.parts if part not in parts]
    if unknown:
        sys.exit(f"{unknown[0]}: expected {', '.join(parts)}")
    print(f"planned on: {machine()}\n")
    with tempfile.TemporaryDirectory() as folder:
        for part in options.parts:
            parts[part](Planning(options.program, folder))


if __name__ == "__main__":
    main()
