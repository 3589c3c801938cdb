"""What `heterog tune` finds on this machine, beside a search by real trials (docs/results/tune.md).

    sudo .venv/bin/python scripts/reproduce/tuned_cpus.py [--gigabits 1] [--trials 100] [--rounds 7]

Two processes on a core each stand for two devices, of which the last repeats its work; `tc tbf`
shapes the loopback that they talk over, in a network namespace. The cluster file says nothing of
that: it has another bandwidth, and one device is believed to be half as fast as the other. Of each
model

1. `heterog plan` makes the nominal plan;
2. `heterog tune` makes one in its rounds;
3. `heterog tune --every-plan --evaluations TRIALS` makes one by that many runs: `plan`, with a
   clock in place of the simulator.

Then the three take turns, a run of STEPS steps each, round after round, so that what else the
machine does falls on all alike. Printed: each one's step (the median over its runs of a run's
median), with the runs and seconds that it took to find, and how far the predicted step of the tuned
plan is off, by the costs that were fitted on the way. Needs root, iproute2 and two free cores.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from learning_value import machine

ROOT = Path(__file__).resolve().parent.parent.parent
SPACE = "heterog-tune"
MODELS = {"bert": ("small_bert", 16), "convolution": ("small_resnet", 24)}  # exported name, batch
CLUSTER = {
    "format": "heterog-cluster", "version": 1, "name": "two",
    "machines": [{"name": "here", "devices": [{"model": "CPU"}, {"model": "CPU-slow"}],
                  "fabric": {"kind": "switch", "bandwidth_bytes_per_second": 1.46e9,
                             "latency_seconds": 13.5e-6}}],
}  # fmt: skip


def sh(*words, **options):
    return subprocess.run([str(word) for word in words], check=True, text=True, **options)


@contextmanager
def shaped_loopback(gigabits: float):
    subprocess.run(["ip", "netns", "del", SPACE], stderr=subprocess.DEVNULL, check=False)
    sh("ip", "netns", "add", SPACE)
    try:
        sh("ip", "-n", SPACE, "link", "set", "lo", "up")
        sh("tc", "-n", SPACE, "qdisc", "add", "dev", "lo", "root", "tbf", "rate", f"{gigabits}gbit",
           "burst", "128kb", "latency", "100ms")  # fmt: skip
        yield
    finally:
        sh("ip", "netns", "del", SPACE)


class Bench:
    def __init__(self, options, model: str):
        name, self.batch = MODELS[model]
        self.out = Path(options.out).resolve() / model
        self.out.mkdir(parents=True, exist_ok=True)
        self.heterog = os.environ.get("HETEROG_BIN", ROOT / "build/release/bin/heterog")
        self.slow = ["--any-device", "--slow", f"here/gpu1={options.factor}"]
        self.cluster = self.out / "two.json"
        self.cluster.write_text(json.dumps(CLUSTER))
        graph = self.out / f"{name}.json.gz"
        sh(sys.executable, "-m", "heterog.export", f"{ROOT}/scripts/measure/small_models.py:{model}",
           "--out", graph, env=os.environ | {"PYTHONPATH": str(ROOT / "python")},
           stdout=subprocess.DEVNULL)  # fmt: skip
        self.files = ["--graph", graph, "--cluster", self.cluster]

    def json(self, *words) -> dict:
        return json.loads(sh(*words, stdout=subprocess.PIPE).stdout)

    def here(self, *words) -> dict:
        """A verb that runs plans, behind the shaped loopback."""
        return self.json("ip", "netns", "exec", SPACE, self.heterog, *words, "--json")

    def plan(self, which: str) -> Path:
        return self.out / f"{which}.plan.json"

    def nominal(self) -> None:
        self.json(self.heterog, "plan", *self.files, "--batch", self.batch, "--out", self.plan("nominal"),
                  "--json")  # fmt: skip

    def tuned(self, steps: int) -> tuple[int, float]:
        begin = time.monotonic()
        found = self.here("tune", *self.files, "--batch", self.batch, *self.slow, "--steps", steps, "--out",
                          self.plan("tuned"), "--profile-out", self.out / "costs")  # fmt: skip
        return len(found["rounds"]), time.monotonic() - begin

    def tried(self, steps: int, trials: int) -> tuple[int, float]:
        begin = time.monotonic()
        found = self.here("tune", *self.files, "--batch", self.batch, *self.slow, "--steps", steps, "--every-plan",
                          "--evaluations", trials, "--out", self.plan("trials"))  # fmt: skip
        return found["runs"], time.monotonic() - begin

    def profiles(self) -> list:
        """What was fitted on the way to the tuned plan."""
        return [word for path in sorted((self.out / "costs").glob("*.json")) for word in ("--profile", path)]

    def measured(self, which: str, steps: int) -> float:
        profiles = [] if which == "nominal" else self.profiles()
        return self.here("run", *self.files, *profiles, "--plan", self.plan(which), *self.slow, "--steps", steps,
                         "--no-measure")["median_step_seconds"]  # fmt: skip

    def predicted(self) -> float:
        return self.json(self.heterog, "simulate", *self.files, *self.profiles(), "--plan", self.plan("tuned"),
                         "--json")["step_seconds"]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--gigabits", type=float, default=1)
    parser.add_argument("--factor", type=int, default=3, help="how often the slow device does its work")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--steps", type=int, default=5, help="of each run while plans are looked for")
    parser.add_argument("--rounds", type=int, default=7, help="in which the plans are compared")
    parser.add_argument("--out", default="out/tuned_cpus")
    options = parser.parse_args()
    print(f"{machine()}, two processes, one {options.factor} times as slow, behind {options.gigabits:g} Gb/s")
    print(f"{'model (batch)':24}{'plan':10}{'runs':>6}{'found in':>10}{'step':>11}{'of trials':>11}{'predicted':>12}")
    with shaped_loopback(options.gigabits):
        for model in options.models:
            bench = Bench(options, model)
            bench.nominal()
            found = {"nominal": (0, 0.0), "tuned": bench.tuned(options.steps),
                     "trials": bench.tried(options.steps, options.trials)}  # fmt: skip
            runs = {which: [] for which in found}
            for _ in range(options.rounds):
                for which in found:
                    runs[which].append(bench.measured(which, 4 * options.steps))
            steps = {which: median(each) for which, each in runs.items()}
            for which, (count, seconds) in found.items():
                name = f"{MODELS[model][0]} ({bench.batch})"
                off = f"{100 * (bench.predicted() / steps[which] - 1):+10.1f} %" if which == "tuned" else ""
                print(f"{name:24}{which:10}{count:6}{seconds:8.0f} s{1e3 * steps[which]:8.1f} ms"
                      f"{100 * (steps[which] / steps['trials'] - 1):+9.1f} %{off}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
