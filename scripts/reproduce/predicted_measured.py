"""Predicted against measured step times, on this machine (docs/results.md).

    sudo .venv/bin/python scripts/reproduce/predicted_measured.py [--rounds 3] [--model bert]

Two workers, each on a core of its own, in two network namespaces joined by a link that `tc tbf`
shapes; the second repeats all its work. Operators are profiled in steps of the runtime, both cores
busy; the link is fitted to the all-reduces of a run that is not in the table. Then every plan is
predicted, and run in rounds, each plan once a round, since a shared machine is faster in one minute
than in the next: the measured time is the mean over the rounds of the run's median step; the
scatter is what the rounds of a plan differ by, the widest from its mean. Needs root, iproute2 and
two free cores. Writes OUT/table.json beside the table.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
SPACES = ("heterog0", "heterog1")
ADDRESSES = ("10.203.0.1", "10.203.0.2")
PORT = "29613"
DEVICES = ("CPU", "CPU-slow")
PLANNERS = ("ev-ar", "ev-ps", "cp-ar", "cp-ps", "single:fast/gpu0", "single:slow/gpu0", "portfolio")


def sh(*words, **options):
    return subprocess.run([str(w) for w in words], check=True, text=True, **options)


def make_network(gigabits: float) -> None:
    remove_network()
    for space in SPACES:
        sh("ip", "netns", "add", space)
        sh("ip", "-n", space, "link", "set", "lo", "up")
    sh("ip", "link", "add", "hg0", "netns", SPACES[0], "type", "veth", "peer", "name", "hg1",
       "netns", SPACES[1])  # fmt: skip
    for i, space in enumerate(SPACES):
        sh("ip", "-n", space, "addr", "add", f"{ADDRESSES[i]}/24", "dev", f"hg{i}")
        sh("ip", "-n", space, "link", "set", f"hg{i}", "up")
        sh("tc", "-n", space, "qdisc", "add", "dev", f"hg{i}", "root", "tbf", "rate",
           f"{gigabits}gbit", "burst", "128kb", "latency", "100ms")  # fmt: skip


def remove_network() -> None:
    for space in SPACES:
        subprocess.run(["ip", "netns", "del", space], stderr=subprocess.DEVNULL, check=False)


def cluster_text(link: dict) -> str:
    nic = {
        "bandwidth_bytes_per_second": link["bandwidth"],
        "latency_seconds": link["hop"] / 2,  # a hop has two of them
        "launch_seconds": link["launch"],
    }
    machines = [
        {"name": name, "devices": [{"model": model}], "nic": nic}
        for name, model in zip(("fast", "slow"), DEVICES, strict=True)
    ]
    return json.dumps(
        {"format": "heterog-cluster", "version": 1, "name": "two-workers", "machines": machines}
    )


class Bench:
    def __init__(self, options):
        self.options = options
        self.out = Path(options.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.heterog = ROOT / "build" / options.preset / "bin" / "heterog"
        self.graph = self.out / f"{options.model}.json.gz"
        self.profiles = [self.out / f"{options.model}.{d}.profile.json" for d in DEVICES]

    def export(self) -> None:
        environment = os.environ | {"PYTHONPATH": str(ROOT / "python")}
        sh(sys.executable, "-m", "heterog.export",
           f"{ROOT}/scripts/small_models.py:{self.options.model}", "--out", self.graph,
           env=environment)  # fmt: skip

    def profile(self) -> None:
        """Both at once: what a core is worth depends on what the other does."""
        batch = self.options.batch
        slices = sorted({1, max(1, batch // 4), batch // 3, batch // 2, 2 * batch // 3, batch})
        running = []
        for core, (device, out) in enumerate(zip(DEVICES, self.profiles, strict=True)):
            out.unlink(missing_ok=True)
            running.append(
                subprocess.Popen(
                    ["taskset", "-c", str(core), str(self.heterog), "profile", "--in-steps",
                     "--graph", str(self.graph), "--out", str(out), "--device", device,
                     "--slow", str(self.options.factor if core else 1), "--threads", "1",
                     "--repeat", "15", "--slices", ",".join(map(str, slices)), "--json"],
                    stdout=subprocess.DEVNULL,
                )  # fmt: skip
            )
        if any([process.wait() for process in running]):
            sys.exit("profiling failed")

    def files(self, cluster: Path) -> list:
        words = ["--graph", self.graph, "--cluster", cluster]
        for profile in self.profiles:
            words += ["--profile", profile]
        return words

    def plan(self, cluster: Path, planner: str, order: str | None = None) -> Path:
        plan = self.out / f"{planner.replace(':', '-').replace('/', '-')}.plan.json"
        sh(self.heterog, "plan", *self.files(cluster), "--batch", self.options.batch, "--planner",
           planner, "--out", plan, "--json", stdout=subprocess.DEVNULL)  # fmt: skip
        return plan

    def run(self, cluster: Path, plan: Path, trace: Path | None = None, order: str = "") -> dict:
        """What rank 0 prints."""
        words = [self.heterog, "run", *self.files(cluster), "--plan", plan, "--steps",
                 self.options.steps, "--threads", "1", "--json", "--any-device",
                 "--slow", f"slow/gpu0={self.options.factor}"]  # fmt: skip
        if trace:
            words += ["--trace", trace]
        if order:
            words += ["--order", order]
        running = []
        for rank, space in enumerate(SPACES):
            place = {"RANK": rank, "LOCAL_RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": ADDRESSES[0],
                     "MASTER_PORT": PORT}  # fmt: skip
            running.append(
                subprocess.Popen(
                    ["ip", "netns", "exec", space, "env", *[f"{k}={v}" for k, v in place.items()],
                     "taskset", "-c", str(rank), *map(str, words)],
                    stdout=subprocess.PIPE, text=True,
                )  # fmt: skip
            )
        printed = [process.communicate()[0] for process in running]
        if any(process.returncode for process in running):
            sys.exit("a run failed")
        return json.loads(printed[0])

    def fit_link(self, gigabits: float) -> dict:
        """From the all-reduces of EV, by least squares of relative errors: seconds = a + bytes · b,
        of which two hops (there and back, as the simulator counts them) take a."""
        guess = {"bandwidth": gigabits * 1.25e8, "hop": 1e-4, "launch": 0.0}
        cluster = self.out / "guess.cluster.json"
        cluster.write_text(cluster_text(guess))
        trace = self.out / "fit"
        self.run(cluster, self.plan(cluster, "ev-ar"), trace)
        points = []
        for event in json.loads((trace / "rank0.json").read_text())["traceEvents"]:
            reduces = event.get("ph") == "X" and event.get("cat") == "all-reduce"
            if reduces and event["pid"] == 0:
                points.append((event["args"]["bytes"], event["dur"] * 1e-6))
        fixed, slope = line(points)
        return {"bandwidth": 1 / slope, "hop": fixed / 2, "launch": 0.0}


def line(points: list) -> tuple[float, float]:
    """Intercept and slope; each point counts by its relative error, outliers left out once."""
    for _ in range(2):
        w = [1 / (y * y) for _, y in points]
        sw = sum(w)
        mx = sum(wi * x for wi, (x, _) in zip(w, points, strict=True)) / sw
        my = sum(wi * y for wi, (_, y) in zip(w, points, strict=True)) / sw
        sxx = sum(wi * (x - mx) ** 2 for wi, (x, _) in zip(w, points, strict=True))
        sxy = sum(wi * (x - mx) * (y - my) for wi, (x, y) in zip(w, points, strict=True))
        slope = sxy / sxx
        intercept = my - slope * mx
        kept = [(x, y) for x, y in points if 0.5 < (intercept + slope * x) / y < 2]
        points = kept or points
    return max(intercept, 0.0), slope


def spearman(a: list, b: list) -> float:
    def ranks(values):  # equal values share the mean of their places
        places = sorted(values)
        return [places.index(v) + (places.count(v) - 1) / 2 for v in values]

    return statistics.correlation(ranks(a), ranks(b))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=("bert", "convolution"), default="bert")
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--factor", type=int, default=2, help="how slow the second worker is")
    parser.add_argument("--steps", type=int, default=7, help="of one run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gigabits", type=float, nargs="+", default=[1.0, 0.2])
    parser.add_argument("--preset", default="release")
    parser.add_argument("--out", default="out/predicted_measured")
    parser.add_argument("--keep-profiles", action="store_true", help="of an earlier run")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("network namespaces need root")
    bench = Bench(options)
    if not options.keep_profiles or not all(p.exists() for p in bench.profiles):
        bench.export()
        bench.profile()
    rows = []
    try:
        for gigabits in options.gigabits:
            make_network(gigabits)
            link = bench.fit_link(gigabits)
            print(f"link of {gigabits} Gb/s: {link['bandwidth'] / 1e6:.1f} MB/s, hop "
                  f"{link['hop'] * 1e6:.0f} us, launch {link['launch'] * 1e6:.0f} us", flush=True)
            cluster = bench.out / f"{gigabits}.cluster.json"
            cluster.write_text(cluster_text(link))
            cases = [
                (planner, order, bench.plan(cluster, planner))
                for planner in PLANNERS
                for order in (("rank",) if planner.startswith("single") else ("rank", "fifo"))
            ]
            results = [[] for _ in cases]
            for _ in range(options.rounds):
                for (_, order, plan), seen in zip(cases, results, strict=True):
                    seen.append(bench.run(cluster, plan, order=order))
            for (planner, order, _), seen in zip(cases, results, strict=True):
                times = [result["median_step_seconds"] for result in seen]
                row = {"gigabits": gigabits, "planner": planner, "order": order,
                       "predicted": seen[0]["predicted_step_seconds"],
                       "measured": statistics.mean(times), "rounds": times}  # fmt: skip
                row["error"] = row["predicted"] / row["measured"] - 1
                row["scatter"] = max(abs(t / row["measured"] - 1) for t in times)
                rows.append(row)
                print(f"{gigabits:>4} Gb/s  {planner:18} {order:5} predicted "
                      f"{row['predicted'] * 1e3:8.1f} ms  measured {row['measured'] * 1e3:8.1f} ms "
                      f" {row['error']:+6.1%}  scatter {row['scatter']:5.1%}", flush=True)
    finally:
        remove_network()
    (bench.out / "table.json").write_text(json.dumps(rows, indent=1))
    errors = [abs(row["error"]) for row in rows]
    agreement = spearman([r["predicted"] for r in rows], [r["measured"] for r in rows])
    print(f"{len(rows)} plans: median error {statistics.median(errors):.1%}, worst "
          f"{max(errors):.1%}, Spearman {agreement:.3f}")


if __name__ == "__main__":
    main()
