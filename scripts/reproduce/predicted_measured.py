"""Predicted against measured step times, on this machine (docs/results.md).

    sudo .venv/bin/python scripts/reproduce/predicted_measured.py [--rounds 3] [--model bert]

Two workers, each on a core of its own, in two network namespaces joined by a link that `tc tbf`
shapes; the second repeats all its work. The link is fitted to the all-reduces of a run that is not
in the table. A shared machine is faster in one minute than in the next, and what others do on it only
ever adds time; so everything else goes in rounds, and what counts is the quietest: every plan runs
once a round, and operators are profiled in steps of the runtime on both workers before, between and
after the rounds. A plan is made with the first profile and predicted with the quietest of each size;
what is measured is the least of the rounds' median steps, and the scatter is how far the mean of the
rounds is above it. What runs while the machine's host takes more than 1 % of the cores' time is
tried again; "stolen" is the most that was taken in the end. Needs root, iproute2 and two free cores.
Writes OUT/table.json beside the table.

"Replayed" is simulated from what the operators took in the measured run itself: what is left of its
error is the simulator's (links, order, waits), the rest of "predicted" the profile's.
"""

import argparse
import copy
import json
import os
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
SPACES = ("heterog0", "heterog1")
ADDRESSES = ("10.203.0.1", "10.203.0.2")
PORT = "29613"
DEVICES = ("CPU", "CPU-slow")
PLANNERS = ("ev-ar", "ev-ps", "cp-ar", "cp-ps", "single:fast/gpu0", "single:slow/gpu0", "policy",
            "portfolio")


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
        "launch_seconds": 0.0,
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
        self.profiles = []  # a file a device: those that plans are made with
        self.profiled = self.ran = 0  # how often


    def export(self) -> None:
        environment = os.environ | {"PYTHONPATH": str(ROOT / "python")}
        sh(sys.executable, "-m", "heterog.export",
           f"{ROOT}/scripts/small_models.py:{self.options.model}", "--out", self.graph,
           env=environment)  # fmt: skip

    def profile(self) -> list[Path]:
        """A file a device. Both at once: what a core is worth depends on what the other does."""
        batch = self.options.batch
        slices = sorted({1, max(1, batch // 4), batch // 3, batch // 2, 2 * batch // 3, batch})
        self.profiled += 1
        files = [self.out / f"{device}.{self.profiled}.profile.json" for device in DEVICES]
        running = []
        for core, (device, out) in enumerate(zip(DEVICES, files, strict=True)):
            out.unlink(missing_ok=True)
            running.append(
                subprocess.Popen(
                    ["taskset", "-c", str(core), str(self.heterog), "profile", "--in-steps",
                     "--graph", str(self.graph), "--out", str(out), "--device", device,
                     "--slow", str(self.options.factor if core else 1), "--threads", "1",
                     "--repeat", str(self.options.repeat), "--slices", ",".join(map(str, slices)), "--json"],
                    stdout=subprocess.DEVNULL,
                )  # fmt: skip
            )
        if any([process.wait() for process in running]):
            sys.exit("profiling failed")
        return files

    def files(self, cluster: Path, profiles: list[Path]) -> list:
        words = ["--graph", self.graph, "--cluster", cluster]
        for profile in profiles:
            words += ["--profile", profile]
        return words

    def plan(self, cluster: Path, planner: str) -> Path:
        plan = self.out / f"{planner.replace(':', '-').replace('/', '-')}.plan.json"
        sh(self.heterog, "plan", *self.files(cluster, self.profiles), "--batch", self.options.batch, "--planner",
           planner, "--out", plan, "--json", stdout=subprocess.DEVNULL)  # fmt: skip
        return plan

    def predict(self, cluster: Path, plan: Path, order: str, profiles: list[Path]) -> float:
        printed = sh(self.heterog, "simulate", *self.files(cluster, profiles), "--plan", plan,
                     "--order", order, "--json", stdout=subprocess.PIPE).stdout  # fmt: skip
        return json.loads(printed)["step_seconds"]

    def run(self, cluster: Path, plan: Path, trace: Path | None = None, order: str = "") -> dict:
        """What rank 0 prints; its "costs" are the files of what the operators took."""
        costs = self.out / f"costs{self.ran}"
        self.ran += 1
        words = [self.heterog, "run", *self.files(cluster, self.profiles), "--plan", plan, "--steps",
                 self.options.steps, "--threads", "1", "--json", "--any-device",
                 "--slow", f"slow/gpu0={self.options.factor}", "--profile-out", costs]  # fmt: skip
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
        files = [costs / f"{device}.profile.json" for device in DEVICES]
        return json.loads(printed[0]) | {"costs": [file for file in files if file.exists()]}

    def fit_link(self, gigabits: float) -> dict:
        """From the all-reduces of EV: the bandwidth that large ones get together, and what is left
        of a small one's median: two hops, there and back, as the simulator counts them."""
        guess = {"bandwidth": gigabits * 1.25e8, "hop": 1e-4}
        cluster = self.out / "guess.cluster.json"
        cluster.write_text(cluster_text(guess))
        trace = self.out / "fit"
        self.run(cluster, self.plan(cluster, "ev-ar"), trace)
        points = []
        for event in json.loads((trace / "rank0.json").read_text())["traceEvents"]:
            reduces = event.get("ph") == "X" and event.get("cat") == "all-reduce"
            if reduces and event["pid"] == 0:
                points.append((event["args"]["bytes"], event["dur"] * 1e-6))
        large = [point for point in points if point[0] >= 128 << 10]
        slope = sum(seconds for _, seconds in large) / sum(count for count, _ in large)
        small = [seconds - count * slope for count, seconds in points if count < 16 << 10]
        return {"bandwidth": 1 / slope, "hop": max(statistics.median(small), 0) / 2}


def stolen_ticks() -> tuple[int, int]:
    """What the machine's host gave to others of the cores' time so far, and all of it."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return ticks[7], sum(ticks)


def undisturbed(action, tries: int):
    """What the action returns in the try from which the host took the least, at most 1 % if it can
    be had, and that share."""
    best = None
    for _ in range(tries):
        before = stolen_ticks()
        result = action()
        after = stolen_ticks()
        share = (after[0] - before[0]) / max(after[1] - before[1], 1)
        if best is None or share < best[1]:
            best = (result, share)
        if share <= 0.01:
            break
    return best


def quiet_profile(files: list[Path], out: Path) -> Path:
    """Of one device: each size as in the file in which its whole step took least; what does not
    depend on the size, the median of the files."""
    texts = [json.loads(file.read_text()) for file in files]

    def step(text, samples):
        return sum(
            len(operator["ops"]) * size["seconds"]
            for operator in text["operators"]
            for size in operator["measured"]
            if size["samples"] == samples
        )

    quietest = {n: min(texts, key=lambda text: step(text, n)) for n in texts[0]["slices"]}
    result = copy.deepcopy(texts[0])
    for i, operator in enumerate(result["operators"]):
        for j, size in enumerate(operator["measured"]):
            if len(operator["measured"]) > 1:
                source = quietest[size["samples"]]
                size["seconds"] = source["operators"][i]["measured"][j]["seconds"]
            else:
                size["seconds"] = statistics.median(
                    text["operators"][i]["measured"][j]["seconds"] for text in texts
                )
    out.write_text(json.dumps(result))
    return out


def spearman(a: list, b: list) -> float:
    def ranks(values):  # equal values share the mean of their places
        places = sorted(values)
        return [places.index(v) + (places.count(v) - 1) / 2 for v in values]

    return statistics.correlation(ranks(a), ranks(b))


QUIET = 0.025  # of the cores' time


def summary(rows: list) -> str:
    lines = []
    quiet = [row for row in rows if row["stolen"] <= QUIET]
    for which, of, what in (
        ("predicted", rows, "plans"),
        ("predicted", quiet, f"plans with at most {QUIET:.1%} stolen"),
        ("replayed", rows, "plans"),
    ):
        if len(of) < 2:
            continue
        errors = [abs(row[f"{which}_error"]) for row in of]
        agreement = spearman([row[which] for row in of], [row["measured"] for row in of])
        lines.append(
            f"{which}, {len(of)} {what}: median error {statistics.median(errors):.1%}, worst "
            f"{max(errors):.1%}, Spearman {agreement:.3f}"
        )
    scatter = statistics.median(row["scatter"] for row in rows)
    return "\n".join(lines + [f"scatter of the rounds: median {scatter:.1%}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=("bert", "convolution"), default="bert")
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--factor", type=int, default=2, help="how slow the second worker is")
    parser.add_argument("--steps", type=int, default=7, help="of one run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=7, help="steps of a size in a profile")
    parser.add_argument("--tries", type=int, default=2, help="to run while the host is quiet")
    parser.add_argument("--gigabits", type=float, nargs="+", default=[1.0, 0.2])
    parser.add_argument("--preset", default="release")
    parser.add_argument("--out", default="out/predicted_measured")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("network namespaces need root")
    bench = Bench(options)
    bench.export()
    rows = []
    try:
        for gigabits in options.gigabits:
            make_network(gigabits)
            tries = options.tries
            bench.profiles, _ = undisturbed(bench.profile, tries)
            link, _ = undisturbed(partial(bench.fit_link, gigabits), tries)
            print(f"link of {gigabits} Gb/s: {link['bandwidth'] / 1e6:.1f} MB/s, hop "
                  f"{link['hop'] * 1e6:.0f} us", flush=True)  # fmt: skip
            cluster = bench.out / f"{gigabits}.cluster.json"
            cluster.write_text(cluster_text(link))
            cases = [
                (planner, order, bench.plan(cluster, planner))
                for planner in PLANNERS
                for order in (("rank",) if planner.startswith("single") else ("rank", "fifo"))
            ]
            profiles, results = [bench.profiles], [[] for _ in cases]
            for _ in range(options.rounds):
                for (_, order, plan), seen in zip(cases, results, strict=True):
                    run = partial(bench.run, cluster, plan, order=order)
                    result, stolen = undisturbed(run, tries)
                    seen.append((result["median_step_seconds"], stolen, result["costs"]))
                profiles.append(undisturbed(bench.profile, tries)[0])
            quiet = [
                quiet_profile(files, bench.out / f"quiet.{device}.profile.json")
                for device, files in zip(DEVICES, zip(*profiles, strict=True), strict=True)
            ]
            for (planner, order, plan), seen in zip(cases, results, strict=True):
                times = [seconds for seconds, _, _ in seen]
                costs = min(seen)[2]
                row = {"gigabits": gigabits, "planner": planner, "order": order,
                       "predicted": bench.predict(cluster, plan, order, quiet),
                       "replayed": bench.predict(cluster, plan, order, costs),
                       "measured": min(times), "rounds": times,
                       "stolen": max(stolen for _, stolen, _ in seen)}  # fmt: skip
                for which in ("predicted", "replayed"):
                    row[f"{which}_error"] = row[which] / row["measured"] - 1
                row["scatter"] = statistics.mean(times) / row["measured"] - 1
                rows.append(row)
                print(f"{gigabits:>4}  {planner:16} {order:5} {row['measured'] * 1e3:7.1f} ms  "
                      f"predicted {row['predicted'] * 1e3:7.1f} {row['predicted_error']:+6.1%}  "
                      f"replayed {row['replayed'] * 1e3:7.1f} {row['replayed_error']:+6.1%}  "
                      f"scatter {row['scatter']:5.1%}  stolen {row['stolen']:5.1%}",
                      flush=True)  # fmt: skip
    finally:
        remove_network()
    (bench.out / "table.json").write_text(json.dumps(rows, indent=1))
    print(summary(rows))


if __name__ == "__main__":
    main()
