"""Trains the policy from scratch on VGG-19, 8 GPUs, and prints its learning curve.

    scripts/reproduce.sh learning_curve [STEPS]

"sampled" is the mean of a step's sampled strategies, over 25 steps; data parallelism is the best of
EV and CP with PS and AR, each in its faster order.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
WINDOW = 25


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 1500
    out = ROOT / "out" / "learning-curve"
    command = [ROOT / "build/release/bin/heterog", "train", "--config", ROOT / "configs/train/small.json",
               "--out", out, "--threads", os.cpu_count(), "--set", f"steps={steps}"]
    begin = time.monotonic()
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
    seconds = time.monotonic() - begin
    rows = [json.loads(line) for line in (out / "train.log").read_text().splitlines()]
    case = rows[0]["cases"][0]["case"]
    base = rows[-1]["cases"][0]["baseline_step_seconds"]
    print(f"{case}, {len(rows)} steps, {rows[-1]['evaluations']:,} plans simulated in {seconds:.0f} s on "
          f"{os.cpu_count()} cores; data parallelism {1e3 * base:.1f} ms\n")
    print("  step     plans  sampled/ms  best/ms  entropy/nats")
    shown = sorted({*(round(len(rows) * i / 12) for i in range(13)), min(WINDOW, len(rows))})
    for at in shown:
        window = rows[max(0, at - WINDOW):max(at, 1)]
        mean = sum(row["cases"][0]["mean_step_seconds"] for row in window) / len(window)
        last = window[-1]
        print(f"{last['step']:6} {last['evaluations']:9,} {1e3 * mean:11.1f} "
              f"{1e3 * last['cases'][0]['best_step_seconds']:8.1f} {last['entropy_nats']:13.2f}")
    means = [row["cases"][0]["mean_step_seconds"] for row in rows]
    first = next((i for i in range(WINDOW, len(rows) + 1)
                  if sum(means[i - WINDOW:i]) / WINDOW < base), None)
    if first is None:
        print("\nthe sampled strategies do not beat data parallelism")
        return 1
    print(f"\nsampled strategies beat data parallelism from step {first} on, after about "
          f"{seconds * first / len(rows):.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
