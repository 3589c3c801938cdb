"""What the best shares gain plain data parallelism on HeteroG's 8 GPUs, simulated (docs/shares.md).

    scripts/reproduce.sh shares [--program build/release/bin/heterog]

Even and proportional shares are all-reduced too, and each stands at its better order and bucket.
Ends with exit code 1 if the found shares are slower than one of the two.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
CLUSTER = "heterog-8gpu"
CASES = [
    ("vgg19", 192),
    ("resnet200", 192),
    ("inception_v3", 192),
    ("mobilenet_v2", 192),
    ("nasnet_a_large", 192),
    ("transformer6", 720),
    ("bert_large24", 48),
    ("xlnet_large24", 48),
    ("resnet200", 352),
    ("bert_large24", 72),
]


def machine():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return f"{line.split(':')[1].strip()}, {os.cpu_count()} cores"
    return f"{os.cpu_count()} cores"


def shares(program, model, batch):
    command = [program, "shares", "--graph", ROOT / "models" / f"{model}.json.gz",
               "--cluster", ROOT / "configs" / "clusters" / f"{CLUSTER}.json",
               "--batch", batch, "--json"]
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{model}, batch {batch}: heterog shares ended with {done.returncode}")
    return json.loads(done.stdout)


def cells(other):
    if not other["feasible"]:
        return "out of memory | –"
    return f"{other['step_seconds']:.3f} | {100 * other['speedup']:+.1f} %"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path,
                        default=ROOT / "build" / "release" / "bin" / "heterog")
    options = parser.parse_args()
    print(f"{CLUSTER}, simulated seconds a step; searched on: {machine()}\n")
    print("| model | batch | samples of each rank | step | even | gain | proportional | gain "
          "| plans |")
    print("|---|---|---|---|---|---|---|---|---|")
    slower = []
    for model, batch in CASES:
        found = shares(options.program, model, batch)
        print(f"| {model} | {batch} | {' '.join(map(str, found['samples_per_rank']))} | "
              f"{found['step_seconds']:.3f} | {cells(found['even'])} | "
              f"{cells(found['proportional'])} | {found['evaluations']} |", flush=True)
        for other in (found["even"], found["proportional"]):
            if other["feasible"] and other["speedup"] < 0:
                slower.append(f"{model} ({batch})")
    if slower:
        sys.exit(f"slower than data parallelism: {', '.join(slower)}")


if __name__ == "__main__":
    main()
