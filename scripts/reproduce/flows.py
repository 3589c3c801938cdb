"""What flows side by side gain where a network caps each (docs/results/flows.md).

    scripts/reproduce.sh flows [--measure] [--rounds 3] [--preset release]

Simulated: plans on AutoSync's clusters, whose cloud caps a flow at 10 Gb/s, with 1, 2, 4 and 16 flows
(`flows` of the cluster file's network). The second table is the gain of `plan` over Horovod with 1 flow,
with 4, and without a cap.

--measure: AlexNet on two workers of this machine, two processes, whose connections the kernel paces at
100 MB/s each (SO_MAX_PACING_RATE, set by a library that the script compiles and preloads). Measured is the
median step of `heterog run`; predicted, by a profile of this processor, measured beside another that runs.
Needs gcc.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from heterog_tables import ROOT, machine

FLOWS = (1, 2, 4, 16)
CASES = [("vgg19", 512, "autosync-b7"), ("bert_large24", 64, "autosync-b7"), ("transformer6", 720, "autosync-b7"),
         ("vgg19", 512, "autosync-b1"), ("vgg19", 512, "autosync-b11"), ("resnet50", 512, "autosync-b7")]  # fmt: skip
CAP = 100e6  # bytes a second
# For the connections that a rank makes, and those that it accepts.
PACED = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/socket.h>
static void pace(int line) {
  unsigned int rate = (unsigned int)strtoul(getenv("PACED_BYTES"), 0, 10);
  if (line >= 0) setsockopt(line, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate);
}
int accept4(int on, struct sockaddr* from, socklen_t* size, int flags) {
  int (*next)(int, struct sockaddr*, socklen_t*, int) = dlsym(RTLD_NEXT, "accept4");
  int line = next(on, from, size, flags);
  pace(line);
  return line;
}
int connect(int line, const struct sockaddr* to, socklen_t size) {
  int (*next)(int, const struct sockaddr*, socklen_t) = dlsym(RTLD_NEXT, "connect");
  pace(line);
  return next(line, to, size);
}
"""


def run(*words, **environment) -> str:
    words = [str(word) for word in words]
    done = subprocess.run(words, capture_output=True, text=True, env=os.environ | environment)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def shipped(cluster) -> dict:
    text = (ROOT / f"configs/clusters/{cluster}.json").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("//")]
    return json.loads("\n".join(lines))


def simulated(heterog, folder):
    def step(model, batch, cluster, planner, flows, capped=True):
        network = cluster["network"] | {"flows": flows}
        if not capped:
            network.pop("flow_cap_bytes_per_second")
        path = folder / "cluster.json"
        path.write_text(json.dumps(cluster | {"network": network}), encoding="utf-8")
        plan = run(heterog, "plan", "--graph", ROOT / f"models/{model}.json.gz", "--cluster", path, "--batch", batch,
                   "--planner", planner, "--out", folder / "plan.json", "--json")  # fmt: skip
        return json.loads(plan)["step_seconds"]

    print("| model | cluster | planner | " + " | ".join(f"{flows} flows" if flows > 1 else "1 flow" for flows in FLOWS)
          + " | 4 by 1 |\n" + "|---" * (4 + len(FLOWS)) + "|")  # fmt: skip
    for model, batch, name in CASES:
        for planner in ("ev-ar", "portfolio"):
            steps = [step(model, batch, shipped(name), planner, flows) for flows in FLOWS]
            print(f"| {model} {batch} | {name} | {'plan' if planner == 'portfolio' else planner} | "
                  + " | ".join(f"{1e3 * one:.0f} ms" for one in steps)
                  + f" | {steps[FLOWS.index(4)] / steps[0]:.2f} |", flush=True)  # fmt: skip
    print("\n| model | cluster | plan over Horovod, 1 flow | 4 flows | no cap |\n|---|---|---|---|---|")
    for model, batch, name in CASES:
        cells = []
        for flows, capped in ((1, True), (4, True), (1, False)):
            theirs, ours = (step(model, batch, shipped(name), planner, flows, capped)
                            for planner in ("horovod", "portfolio"))  # fmt: skip
            cells.append(f"{100 * (theirs / ours - 1):+.0f} %")
        print(f"| {model} {batch} | {name} | " + " | ".join(cells) + " |", flush=True)


def measured(heterog, folder, rounds):
    source, library = folder / "paced.c", folder / "paced.so"
    source.write_text(PACED, encoding="utf-8")
    run("gcc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl")
    graph, batch, profile = ROOT / "models/alexnet.json.gz", 8, folder / "cpu.profile.json"
    # Two at a time, as they run: each has one core, and both share the memory.
    profiling = [[heterog, "profile", "--graph", graph, "--in-steps", "--threads", "1", "--slices", "2,4",
                  "--repeat", "5", "--force", "--out", folder / name] for name in ("cpu.profile.json", "other.json")]  # fmt: skip
    beside = [subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL) for words in profiling]
    if any([one.wait() for one in beside]):
        sys.exit("a profile ended with an error")
    nic = {"bandwidth_bytes_per_second": 2e9, "latency_seconds": 30e-6}
    machines = [{"name": name, "devices": [{"model": "CPU"}], "nic": nic} for name in ("a", "b")]
    print("\n| planner | flows | predicted | measured | off |\n|---|---|---|---|---|")
    for planner in ("ev-ar", "ev-ps"):
        for flows in FLOWS[:3]:
            network = {"latency_seconds": 0, "flow_cap_bytes_per_second": CAP, "flows": flows}
            cluster, plan = folder / "two.json", folder / "plan.json"
            cluster.write_text(json.dumps({"format": "heterog-cluster", "version": 1, "name": "two",
                                           "machines": machines, "network": network}), encoding="utf-8")  # fmt: skip
            words = ["--graph", graph, "--cluster", cluster]
            said = json.loads(run(heterog, "plan", *words, "--batch", batch, "--planner", planner, "--profile", profile,
                                  "--out", plan, "--json"))  # fmt: skip
            steps = []
            for _ in range(rounds):
                found = run(heterog, "run", *words, "--plan", plan, "--steps", 6, "--threads", 1, "--no-measure",
                            "--json", "--processes", LD_PRELOAD=str(library), PACED_BYTES=str(int(CAP)))  # fmt: skip
                steps.append(json.loads(found)["median_step_seconds"])
            step = statistics.median(steps)
            print(f"| {planner} | {flows} | {1e3 * said['step_seconds']:.0f} ms | {1e3 * step:.0f} ms | "
                  f"{100 * (said['step_seconds'] / step - 1):+.1f} % |", flush=True)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--preset", default="release")
    options = parser.parse_args()
    heterog = ROOT / "build" / options.preset / "bin" / "heterog"
    print(f"{machine()}, {options.preset} preset\n")
    with tempfile.TemporaryDirectory() as folder:
        if options.measure:
            measured(heterog, Path(folder), options.rounds)
        else:
            simulated(heterog, Path(folder))


if __name__ == "__main__":
    main()
