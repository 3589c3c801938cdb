"""Predicted against measured step times, on this machine (docs/results/predicted_measured.md).

    sudo .venv/bin/python scripts/reproduce/predicted_measured.py [--rounds 60] [--workers 3]

Two workers, each on a core of its own, in two network namespaces joined by a link that `tc tbf`
shapes; the last repeats all its work. Three or more share the cores, each capped by the kernel to
the same part (a control group with a quota in every 10 ms, together 0.8 of the cores at most), and
are joined by a switch with such a link to each. Plans are made from a profile of the operators and a link
that is fitted to the all-reduces of a run that is not in the table. A shared machine is faster in
one minute than in the next; so, in one process a worker (bench_turns), all plans and the steps of a
second profile take turns, a step each, round after round, until each has QUIET steps from which the
machine's host took at most 1 % of the cores' time. Of each plan's steps, and of each size of the
profile's, those count, and at least half of all; "stolen" is what the host took from those that
count. "Measured" is the mean over the middle half of them, its interval the 95 % of that mean.

"Predicted" is simulated from the profile of the same rounds, which has no plan in it, and from what
the link carries and takes of the cores in steps of that profile beside which all-reduces keep it
busy.

--flow-cap BYTES: every connection carries so many bytes a second at most, as clouds cap a flow
(paced.py), and plans are compared with 1, 2 and 4 connections between two workers (--flows). What
the link carries is fitted without the cap then, and not in the turns.

"Replayed" is simulated from what the operators took in the measured steps themselves: what is left
of its error is the simulator's (links, order, waits), the rest of "predicted" the profile's. A
planner "NAME+8" is NAME with `plan --order-rounds 8`, in the order that comes of it. Needs
root, iproute2 and two free cores. Writes OUT/table.json beside the table.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from cap import Cap
from paced import pacing

ROOT = Path(__file__).resolve().parent.parent.parent
PORT = "29613"
SWITCH = "heterog-switch"
PLANNERS = ("ev-ar", "ev-ps", "cp-ar", "cp-ps", "single:fast/gpu0", "single:slow/gpu0", "policy",
            "portfolio")
PIPELINES = ("spp", "pipedream", "gpipe", "accumulate")


def sh(*words, **options):
    return subprocess.run([str(w) for w in words], check=True, text=True, **options)


def space(worker: int) -> str:
    return f"heterog{worker}"


def address(worker: int) -> str:
    return f"10.203.0.{worker + 1}"


def make_network(gigabits: float, workers: int) -> None:
    """Each worker in a namespace, with one card; whatever leaves either end of a cable is shaped."""
    remove_network(workers)
    for worker in range(workers):
        sh("ip", "netns", "add", space(worker))
        sh("ip", "-n", space(worker), "link", "set", "lo", "up")
    if workers == 2:
        cables = [(space(0), "hg0", space(1), "hg1")]
    else:
        sh("ip", "netns", "add", SWITCH)
        sh("ip", "-n", SWITCH, "link", "add", "br0", "type", "bridge")
        sh("ip", "-n", SWITCH, "link", "set", "br0", "up")
        cables = [(space(i), f"hg{i}", SWITCH, f"port{i}") for i in range(workers)]
    for near, name, far, other in cables:
        sh("ip", "link", "add", name, "netns", near, "type", "veth", "peer", "name", other,
           "netns", far)  # fmt: skip
        if far == SWITCH:
            sh("ip", "-n", far, "link", "set", other, "master", "br0")
        for where, end in ((near, name), (far, other)):
            sh("ip", "-n", where, "link", "set", end, "up")
            sh("tc", "-n", where, "qdisc", "add", "dev", end, "root", "tbf", "rate",
               f"{gigabits}gbit", "burst", "128kb", "latency", "100ms")  # fmt: skip
    for worker in range(workers):
        sh("ip", "-n", space(worker), "addr", "add", f"{address(worker)}/24", "dev", f"hg{worker}")


def remove_network(workers: int) -> None:
    for name in [*map(space, range(workers)), SWITCH]:
        subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)


def cluster_text(link: dict, network: dict | None = None) -> str:
    nic = {
        "bandwidth_bytes_per_second": link["bandwidth"],
        "latency_seconds": link["hop"] / 2,  # a hop has two of them
        "launch_seconds": 0.0,
    }
    overheads = link["overheads"]
    machines = [
        {"name": name, "nic": nic,
         "devices": [{"model": device(i, len(overheads)), "overhead_seconds_per_byte": overhead}]}
        for i, (name, overhead) in enumerate(zip(names(len(overheads)), overheads, strict=True))
    ]  # fmt: skip
    return json.dumps(
        {"format": "heterog-cluster", "version": 1, "name": "workers", "machines": machines}
        | ({"network": network} if network else {})
    )


def names(workers: int) -> list:
    return ["fast", *(f"fast{i}" for i in range(2, workers)), "slow"]


def device(worker: int, workers: int) -> str:
    return "CPU-slow" if worker == workers - 1 else "CPU"


class Bench:
    def __init__(self, options):
        self.options = options
        self.out = Path(options.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.bin = ROOT / "build" / options.preset / "bin"
        self.heterog = self.bin / "heterog"
        self.graph = self.out / f"{options.model}.json.gz"
        batch = options.batch
        self.slices = sorted({batch // 6, batch // 3, batch // 2, 2 * batch // 3, batch})
        if any(planner.split("+")[0].split(":")[0] in PIPELINES for planner in options.planners):
            self.slices = sorted({batch // 12, batch // 8, *self.slices})
        self.profiles = []  # a file a device type: those that plans are made with
        self.workers = options.workers
        self.types = ("CPU", "CPU-slow")
        self.pacing = {}  # of the connections of ranks
        self.part = min(1, 0.8 * os.cpu_count() / self.workers) if self.workers > 2 else 1

    def export(self) -> None:
        environment = os.environ | {"PYTHONPATH": str(ROOT / "python")}
        sh(sys.executable, "-m", "heterog.export",
           f"{ROOT}/scripts/measure/small_models.py:{self.options.model}", "--out", self.graph,
           env=environment)  # fmt: skip

    def profile(self) -> None:
        """All devices at once: what a core is worth depends on what the others do."""
        outs = [self.out / f"worker{i}.profile.json" for i in range(self.workers)]
        commands = []
        for i, out in enumerate(outs):
            out.unlink(missing_ok=True)
            Path(f"{out}.partial").unlink(missing_ok=True)
            commands.append(
                [self.heterog, "profile", "--in-steps", "--graph", self.graph, "--out", out,
                 "--device", device(i, self.workers), "--slow", self.factor(i), "--threads", 1,
                 "--repeat", self.options.repeat, "--slices", ",".join(map(str, self.slices)),
                 "--json"]
            )  # fmt: skip
        self.together(commands)
        self.profiles = [outs[0], outs[-1]]

    def factor(self, worker: int) -> int:
        """How often a worker does its work."""
        return self.options.factor if worker == self.workers - 1 else 1

    def files(self, cluster: Path, profiles: list[Path]) -> list:
        words = ["--graph", self.graph, "--cluster", cluster]
        for profile in profiles:
            words += ["--profile", profile]
        return words

    def plan(self, cluster: Path, planner: str) -> Path:
        plan = self.out / f"{planner.replace(':', '-').replace('/', '-')}.plan.json"
        name, _, rounds = planner.partition("+")
        words = ["--order-rounds", rounds] if rounds else []
        sh(self.heterog, "plan", *self.files(cluster, self.profiles), "--batch", self.options.batch,
           "--planner", name, *words, "--out", plan, "--json", stdout=subprocess.DEVNULL)  # fmt: skip
        return plan

    def for_cluster(self, cluster: Path) -> dict:
        """What plans say of the cluster that they were made for."""
        return json.loads(self.plan(cluster, "single").read_text())["cluster"]

    def predict(self, cluster: Path, plan: Path, order: str, profiles: list[Path]) -> float:
        here = self.out / "here.plan.json"  # made for the link as it was fitted, before the turns
        here.write_text(
            json.dumps(json.loads(plan.read_text()) | {"cluster": self.for_cluster(cluster)})
        )
        words = ["--order", order] if order else []
        printed = sh(self.heterog, "simulate", *self.files(cluster, profiles), "--plan", here,
                     *words, "--json", stdout=subprocess.PIPE).stdout  # fmt: skip
        return json.loads(printed)["step_seconds"]

    def on_workers(self, *words) -> None:
        """The command as all ranks, each in its namespace and on its part of the cores."""
        commands = []
        for rank in range(self.workers):
            place = {"RANK": rank, "LOCAL_RANK": 0, "WORLD_SIZE": self.workers,
                     "MASTER_ADDR": address(0), "MASTER_PORT": PORT, **self.pacing}  # fmt: skip
            commands.append(["ip", "netns", "exec", space(rank), "env",
                             *[f"{k}={v}" for k, v in place.items()], *words])  # fmt: skip
        self.together(commands)

    def together(self, commands: list) -> None:
        """One command a worker."""
        with self.parts() as caps:
            running = []
            for worker, command in enumerate(commands):
                alone = [] if caps else ["taskset", "-c", worker]
                running.append(
                    subprocess.Popen([str(word) for word in [*alone, *command]],
                                     stdout=subprocess.DEVNULL,
                                     preexec_fn=caps[worker].add_self if caps else None)
                )  # fmt: skip
            if any([process.wait() for process in running]):
                sys.exit(f"failed: {' '.join(map(str, commands[0]))}")

    @contextmanager
    def parts(self):
        """Caps of the workers, none if each has a core."""
        caps = []
        try:
            if self.part < 1:
                caps = [Cap(str(worker), self.part) for worker in range(self.workers)]
            yield caps
        finally:
            for cap in caps:
                cap.remove()

    def fit_link(self, gigabits: float) -> dict:
        """From the all-reduces of EV: the bandwidth that large ones get together, and what is left
        of a small one's median: there and back along a ring, as the simulator counts it."""
        none = (0,) * self.workers
        guess = {"bandwidth": gigabits * 1.25e8, "hop": 1e-4, "overheads": none}
        cluster = self.out / "guess.cluster.json"
        cluster.write_text(cluster_text(guess))
        plan = self.plan(cluster, "ev-ar")
        trace = self.out / "fit"
        self.on_workers(
            self.heterog, "run", *self.files(cluster, self.profiles), "--plan",
            plan, "--steps", self.options.repeat, "--threads", 1, "--json",
            "--any-device", "--slow", f"slow/gpu0={self.options.factor}", "--trace", trace,
        )  # fmt: skip
        points = []
        hops = 2 * (self.workers - 1)
        for event in json.loads((trace / "rank0.json").read_text())["traceEvents"]:
            reduces = event.get("ph") == "X" and event.get("cat") == "all-reduce"
            if reduces and event["pid"] == 0:
                sent = event["args"]["bytes"] * hops / self.workers
                points.append((sent, event["dur"] * 1e-6))
        large = [point for point in points if point[0] >= 128 << 10]
        slope = sum(seconds for _, seconds in large) / sum(count for count, _ in large)
        small = [seconds - count * slope for count, seconds in points if count < 16 << 10]
        hop = max(statistics.median(small), 0) / hops
        return {"bandwidth": 1 / slope, "hop": hop, "overheads": none}

    def take_turns(self, cluster: Path, cases: list, out: Path) -> dict:
        """What bench_turns writes of the cases (planner, order, plan), its files in `out`."""
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        words = []
        for _, order, plan in cases:
            words += ["--case", f"{plan}={order}"]
        self.on_workers(
            self.bin / "bench_turns", *self.files(cluster, self.profiles), *words, "--slices",
            ",".join(map(str, self.slices)), "--slow",
            ",".join(str(self.factor(i)) for i in range(self.workers)), "--rounds",
            self.options.rounds, "--quiet", self.options.quiet, "--out", out,
        )  # fmt: skip
        return json.loads((out / "turns.json").read_text())

    def rows(self, gigabits: float) -> list:
        link = self.fit_link(gigabits)
        print(f"link of {gigabits} Gb/s: {link['bandwidth'] / 1e6:.1f} MB/s, hop "
              f"{link['hop'] * 1e6:.0f} us", flush=True)  # fmt: skip
        if not self.options.flow_cap:
            return self.table(gigabits, link, {})
        cap = self.options.flow_cap
        self.pacing = pacing(self.out, cap)
        rows = []
        for flows in self.options.flows:
            print(f"{flows} flows of {cap / 1e6:g} MB/s", flush=True)
            network = {"latency_seconds": 0, "flow_cap_bytes_per_second": cap, "flows": flows}
            rows += [row | {"flows": flows} for row in self.table(gigabits, dict(link), network)]
        self.pacing = {}
        return rows

    def table(self, gigabits: float, link: dict, network: dict) -> list:
        """A row a plan."""
        cluster = self.out / f"{gigabits}.cluster.json"
        cluster.write_text(cluster_text(link, network))
        cases = [
            (planner, order, self.plan(cluster, planner))
            for planner in self.options.planners
            for order in orders(planner)
        ]
        out = self.out / f"{gigabits}"
        turns = self.take_turns(cluster, cases, out)
        profiles = [out / f"{kind}.profile.json" for kind in self.types]
        seen = [json.loads((out / f"link{rank}.json").read_text()) for rank in range(self.workers)]
        if not network:
            link["bandwidth"] = statistics.mean(end["bandwidth_bytes_per_second"] for end in seen)
        replayed = self.out / f"{gigabits}.replayed.cluster.json"
        replayed.write_text(cluster_text(link, network))  # what moving took is in the costs already
        link["overheads"] = [end["overhead_seconds_per_byte"] for end in seen]
        cluster.write_text(cluster_text(link, network))
        overheads = ", ".join(f"{overhead * 1e9:.2f}" for overhead in link["overheads"])
        print(f"in the turns: {link['bandwidth'] / 1e6:.1f} MB/s; of the cores {overheads} ns a byte")
        rows = []
        for i, ((planner, order, plan), case) in enumerate(zip(cases, turns["cases"], strict=True)):
            costs = [out / f"case{i}.{kind}.profile.json" for kind in self.types]
            row = {"gigabits": gigabits, "planner": planner, "order": order,
                   "measured": case["seconds"],
                   "interval": interval([case["rounds"][k] for k in case["kept"]]),
                   "stolen": statistics.mean(case["stolen"][k] for k in case["kept"]),
                   "predicted": self.predict(cluster, plan, order, profiles),
                   "replayed": self.predict(replayed, plan, order,
                                            [file for file in costs if file.exists()]),
                   "rounds": case["rounds"], "kept": case["kept"]}  # fmt: skip
            for which in ("predicted", "replayed"):
                row[f"{which}_error"] = row[which] / row["measured"] - 1
            rows.append(row)
            print(f"{gigabits:>4}  {planner:16} {order or 'own':5} {row['measured'] * 1e3:7.1f} ms "
                  f"+-{row['interval'] / row['measured']:4.1%}  "
                  f"predicted {row['predicted'] * 1e3:7.1f} {row['predicted_error']:+6.1%}  "
                  f"replayed {row['replayed'] * 1e3:7.1f} {row['replayed_error']:+6.1%}  "
                  f"stolen {row['stolen']:4.1%}",
                  flush=True)  # fmt: skip
        return rows


def orders(planner: str) -> tuple:
    if planner.startswith("single"):
        return ("rank",)
    # Pipelines have turns or priorities, which belong to the plan.
    own = "+" in planner or planner.split(":")[0] in PIPELINES
    return ("",) if own else ("rank", "fifo")


def interval(values: list) -> float:
    """Half the 95 % interval of the mean over the middle half."""
    values = sorted(values)
    middle = values[len(values) // 4 : len(values) - len(values) // 4]
    winsorised = [min(max(value, middle[0]), middle[-1]) for value in values]
    return 1.96 * 2 * statistics.stdev(winsorised) / len(values) ** 0.5


def spearman(a: list, b: list) -> float:
    def ranks(values):  # equal values share the mean of their places
        places = sorted(values)
        return [places.index(v) + (places.count(v) - 1) / 2 for v in values]

    return statistics.correlation(ranks(a), ranks(b))


def summary(rows: list) -> str:
    lines = []
    for which in ("predicted", "replayed"):
        errors = [abs(row[f"{which}_error"]) for row in rows]
        agreement = spearman([row[which] for row in rows], [row["measured"] for row in rows])
        lines.append(
            f"{which}, {len(rows)} plans: median error {statistics.median(errors):.1%}, worst "
            f"{max(errors):.1%}, Spearman {agreement:.3f}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=("bert", "convolution"), default="bert")
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--factor", type=int, default=2, help="how slow the last worker is")
    parser.add_argument("--rounds", type=int, default=60, help="at most")
    parser.add_argument("--quiet", type=int, default=15, help="steps of each that are enough")
    parser.add_argument("--repeat", type=int, default=7, help="steps of a size in a profile")
    parser.add_argument("--planners", nargs="+", default=PLANNERS)
    parser.add_argument("--gigabits", type=float, nargs="+", default=[1.0, 0.2])
    parser.add_argument("--flow-cap", type=float, default=0, help="bytes a second; 0: none")
    parser.add_argument("--flows", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--preset", default="release")
    parser.add_argument("--out", default="out/predicted_measured")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("network namespaces and control groups need root")
    if not 2 <= options.workers <= 9 or options.factor < 1:
        sys.exit("--workers: 2 to 9; --factor: at least 1")
    sh("cmake", "--build", ROOT / "build" / options.preset, "--target", "heterog", "bench_turns",
       stdout=subprocess.DEVNULL)  # fmt: skip
    bench = Bench(options)
    bench.export()
    bench.profile()
    rows = []
    try:
        for gigabits in options.gigabits:
            make_network(gigabits, options.workers)
            rows += bench.rows(gigabits)
    finally:
        remove_network(options.workers)
    (bench.out / "table.json").write_text(json.dumps(rows, indent=1))
    print(summary(rows))


if __name__ == "__main__":
    main()
