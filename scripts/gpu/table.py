"""The tables of the GPU kit: losses of runs side by side; measured steps beside eager and predicted.

    table.py losses RESULTS    every run of one graph from one seed has the same losses; else code 1
    table.py steps RESULTS …   of several, the last that has a figure counts
    table.py kinds RESULTS …   recorded steps: each kind of operator, predicted and measured
    table.py parts RESULTS     plans on parts of one GPU: predicted, measured, memory
RESULTS: the folder of kit.py's results.
"""

import contextlib
import json
import re
import sys
from pathlib import Path

# Losses of float32 in other orders of sums, after ten steps.
TOLERANCE = 5e-3
# Of parts of a GPU, in the order of kit.py.
PLANS = ["even", "proportional", "best", "by_profile"]


def losses(folder: Path) -> int:
    runs = {}
    for path in sorted(folder.glob("run_*.txt")):
        found = re.findall(r"^step \d+: loss (\S+),", path.read_text(), re.MULTILINE)
        runs[path.stem] = [float(loss) for loss in found]
    if "run_cpu_ev-ar" not in runs or not runs["run_cpu_ev-ar"]:
        print("the run on CPUs, which others are compared with, has no losses")
        return 1
    expected, worst = runs["run_cpu_ev-ar"], 0.0
    for name, values in runs.items():
        if not values:
            print(f"{name:28} has no losses")
            worst = float("inf")
            continue
        off = max(abs(a - b) / abs(b) for a, b in zip(values, expected))
        worst = max(worst, off)
        print(f"{name:28} {values[0]:.6f} … {values[-1]:.6f}, {len(values)} steps, off by {off:.1e}")
    print(f"{len(runs)} runs, worst {worst:.1e}, allowed {TOLERANCE:.0e}")
    return int(worst > TOLERANCE)


def last_json(path: Path) -> dict:
    """The last line that is whole, or the file as one; {} where there is neither."""
    with contextlib.suppress(OSError):
        text = path.read_text()
        for part in [text, *reversed(text.splitlines())]:
            with contextlib.suppress(ValueError):
                return json.loads(part)
    return {}


def newest(folders, pattern) -> dict[str, Path]:
    """By its name, the file of the last folder that has it."""
    return {path.name: path for folder in folders for path in sorted(folder.glob(pattern))}


def steps(*folders: Path) -> int:
    columns = ("eager", "+copy", "ahead", "compile", "graph", "heterog", "/eager", "recorded", "predicted", "/pred.",
               "GB", "pred. GB", "eager GB")  # fmt: skip
    print(f"{'model, ms a step':28}" + "".join(f"{name:>10}" for name in columns))
    files = newest(folders, "*.json")
    for path in sorted(newest(folders, "eager_*.json").values()):
        name = path.stem.removeprefix("eager_")
        eager, run, recorded, compiled = (
            last_json(files.get(f"{kind}_{name}.json", Path())) for kind in ("eager", "run", "recorded", "compiled")
        )
        memory = (recorded.get("memory") or [{}])[0]
        ms = 1e3 * run.get("median_step_seconds", 0)
        cells = (
            eager.get("ms"), eager.get("copy_ms"), eager.get("ahead_ms"), compiled.get("compiled_ms"),
            eager.get("cuda_graph_ms"), ms, ms / eager["copy_ms"] if eager.get("copy_ms") else None,
            1e3 * recorded.get("median_step_seconds", 0), 1e3 * run.get("predicted_step_seconds", 0),
            run.get("measured_over_predicted"), memory.get("measured", {}).get("peak_bytes", 0) / 1e9,
            memory.get("predicted", {}).get("peak_bytes", 0) / 1e9, eager.get("peak_bytes", 0) / 1e9,
        )  # fmt: skip
        print(f"{name:28}" + "".join(f"{cell:10.2f}" if cell else f"{'-':>10}" for cell in cells))
        for key, found in (("compiled_error", compiled), ("cuda_graph_error", eager)):
            if key in found:
                print(f"  {key.replace('_', ' ')}: {found[key]}")
    return 0


def kinds(*folders: Path) -> int:
    for path in sorted(newest(folders, "recorded_*.json").values()):
        run = last_json(path)
        print(f"{path.stem.removeprefix('recorded_')}, ms a step{'tasks':>24}{'predicted':>12}{'measured':>12}{'ratio':>8}")
        for one in run.get("drift", []):
            predicted, measured = (1e3 * one[f"{which}_seconds"] for which in ("predicted", "measured"))
            print(f"{one['what']:40}{one['tasks']:8}{predicted:12.2f}{measured:12.2f}{measured / predicted if predicted else 0:8.2f}")
        step = run.get("median_step_seconds", 0)
        print(f"{'step, recorded':48}{1e3 * run.get('predicted_step_seconds', 0):12.2f}{1e3 * step:12.2f}{run.get('measured_over_predicted', 0):8.2f}")
    return 0


def parts(folder: Path) -> int:
    print(f"{'model':28}{'plan':14}" + "".join(f"{name:>12}" for name in ("predicted ms", "measured ms", "/pred.", "/even", "pred. GB", "GB")))
    found = {}
    runs = [path.name.removeprefix("parts_").removesuffix(".run.json").rsplit(".", 1) for path in folder.glob("parts_*.run.json")]
    for model, kind in sorted(runs, key=lambda run: (run[0], PLANS.index(run[1]))):
        run = last_json(folder / f"parts_{model}.{kind}.run.json")
        step = found[model, kind] = run.get("median_step_seconds", 0)
        even, memory = found.get((model, "even")), run.get("memory") or [{}]
        peaks = [sum(each.get(which, {}).get("peak_bytes", 0) for each in memory) / 1e9 for which in ("predicted", "measured")]
        cells = (1e3 * run.get("predicted_step_seconds", 0), 1e3 * step, run.get("measured_over_predicted"),
                 step / even if even else None, *peaks)  # fmt: skip
        print(f"{model:28}{kind:14}" + "".join(f"{cell:12.2f}" if cell else f"{'-':>12}" for cell in cells))
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    table = {"losses": losses, "steps": steps, "kinds": kinds, "parts": parts}[sys.argv[1]]
    sys.exit(table(*map(Path, sys.argv[2:])))
