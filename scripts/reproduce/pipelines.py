"""What pipelines gain where a model fits no device, or the network is slow, simulated
(docs/pipelines.md).

    scripts/reproduce.sh pipelines [--quick] [--program build/release/bin/heterog]

Seconds of a step: by `plan` without pipelines and with them, and by each planner of pipelines alone.
--quick leaves the planners alone out. Ends with exit code 1 if `plan` is slower with pipelines.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
CASES = [
    ("bert_large48", 24, "heterog-8gpu"),
    ("xlnet_large48", 24, "heterog-8gpu"),
    ("transformer24", 120, "heterog-8gpu"),
    ("bert_large48", 36, "heterog-12gpu"),
    ("xlnet_large48", 36, "heterog-12gpu"),
    ("transformer24", 180, "heterog-12gpu"),
    ("bert_large24", 16, "spp-a"),
    ("bert_large48", 16, "spp-a"),
    ("bert_large24", 40, "autosync-b9"),
    ("bert_large24", 48, "heterog-8gpu"),
    ("vgg19", 192, "heterog-8gpu"),
]
PLANNERS = ["spp", "spp:form=paper", "pipedream", "gpipe", "hetpipe", "folded", "accumulate"]


def machine():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return f"{line.split(':')[1].strip()}, {os.cpu_count()} cores"
    return f"{os.cpu_count()} cores"


def plan(program, model, batch, cluster, planner):
    """Seconds of a step, or None if it does not fit, and seconds of planning."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "plan.json"
        command = [program, "plan", "--graph", ROOT / "models" / f"{model}.json.gz", "--cluster",
                   ROOT / "configs" / "clusters" / f"{cluster}.json", "--batch", batch,
                   "--planner", planner, "--out", out]
        begin = time.monotonic()
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        took = time.monotonic() - begin
        if not out.exists():
            return None, took
        predicted = json.loads(out.read_text())["predicted"]
        return (predicted["step_seconds"] if predicted["feasible"] else None), took


def cell(seconds):
    return "none" if seconds is None else f"{seconds:.3f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path,
                        default=ROOT / "build" / "release" / "bin" / "heterog")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    planners = [] if options.quick else PLANNERS
    print(f"planned on: {machine()}\n")
    print("| model, batch, cluster | without | plan | gain | planned in | "
          + " | ".join(planners) + (" |" if planners else ""))
    print("|---" * (5 + len(planners)) + "|")
    worse = 0
    for model, batch, cluster in CASES:
        without, _ = plan(options.program, model, batch, cluster, "portfolio:pipelines=0")
        found, took = plan(options.program, model, batch, cluster, "portfolio")
        worse += found is None or (without is not None and found > without)
        gain = "–" if without is None or found is None else f"{100 * (without / found - 1):+.1f} %"
        row = [f"{model} {batch} {cluster}", cell(without), cell(found), gain, f"{took:.1f} s"]
        row += [cell(plan(options.program, model, batch, cluster, one)[0]) for one in planners]
        print("| " + " | ".join(row) + " |", flush=True)
    sys.exit(1 if worse else 0)


if __name__ == "__main__":
    main()
