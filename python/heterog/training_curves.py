"""What a policy has learnt, by step: `train.log` of `heterog train` as curves of TensorBoard or a page.

    python -m heterog.training_curves runs/zoo runs/other --page curves.html --tensorboard runs/curves
"""

import html
import math
import sys
from pathlib import Path
from typing import Any

from heterog.base.arguments import make_parser
from heterog.base.errors import HeterogError, InputError, RunFailed
from heterog.base.files import replace_file
from heterog.base.reading import MOST_GRAPH_BYTES, parse_json, read_text
from heterog.base.values import as_int, as_list, as_number, as_object, as_string, required

# Of a step → what the page calls it.
CURVES = {
    "best_over_plain": "best found, beside plain data parallelism",
    "best_over_taught": "best found, beside what the search taught",
    "entropy_nats": "entropy, nats a group",
    "loss": "loss",
    "mean_reward": "mean reward",
    "evaluations": "plans simulated",
}
_COLOURS = ["#3367d6", "#c2410c", "#15803d", "#7e22ce", "#b45309", "#0e7490"]
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 460, 200, 56, 24


def read_training_log(path) -> list[dict[str, Any]]:
    """The steps of a `train.log`, or of the folder that `heterog train` wrote it to: `docs/formats.md`
    says what each has. A last line that was cut off is left out."""
    path = Path(path)
    if path.is_dir():
        path = path / "train.log"
    lines = read_text(path, MOST_GRAPH_BYTES).splitlines(keepends=True)
    steps = []
    for number, line in enumerate(lines, 1):
        try:
            steps.append(_step(line, f"{path}, line {number}"))
        except InputError:
            if number == len(lines) and not line.endswith("\n"):
                break  # a run that is being written
            raise
    if not steps:
        raise InputError(f"{path}: no step has been finished")
    return steps


def _step(line: str, where: str) -> dict[str, Any]:
    """A step of a training, of which what is read here is what it should be."""
    step = as_object(parse_json(line, where), where)
    step["step"] = as_int(required(step, "step", where), f"{where}: step", 0, 2**53)
    for name in ("loss", "entropy_nats"):
        as_number(required(step, name, where), f"{where}: {name}")
    for name in ("mean_reward", "evaluations"):
        as_number(step.get(name, 0), f"{where}: {name}")
    for i, value in enumerate(as_list(required(step, "cases", where), f"{where}: cases")):
        at = f"{where}: cases[{i}]"
        case = as_object(value, at)
        as_string(required(case, "case", at), f"{at}.case")
        for name in ("best_step_seconds", "baseline_step_seconds"):
            _check_seconds(required(case, name, at), f"{at}.{name}")
        _check_seconds(case.get("taught_step_seconds", 0), f"{at}.taught_step_seconds")
    return step


def _check_seconds(value, where: str) -> None:
    """0 stands for none; a step takes a nanosecond and more."""
    if as_number(value, where, 0, 1e9):
        as_number(value, where, 1e-9, 1e9)


def scalars(steps: list[dict[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    """Curves by name, (step, value) each: those of CURVES, and `cases/NAME` in seconds a step.

    `best_over_plain` is the geometric mean over the cases seen so far, each as it was seen last; below
    1, the best plans are faster than plain data parallelism. Cases of which nothing fits are left
    out."""
    curves: dict[str, list[tuple[int, float]]] = {name: [] for name in CURVES}
    plain: dict[str, float] = {}
    taught: dict[str, float] = {}
    for step in steps:
        number = step["step"]
        for name in ("loss", "entropy_nats", "mean_reward", "evaluations"):
            if name in step:
                curves[name].append((number, step[name]))
        for case in step["cases"]:
            best = case["best_step_seconds"]
            if best <= 0:
                continue
            curves.setdefault(f"cases/{case['case']}", []).append((number, best))
            if case["baseline_step_seconds"] > 0:
                plain[case["case"]] = math.log(best / case["baseline_step_seconds"])
            if case.get("taught_step_seconds", 0) > 0:
                taught[case["case"]] = math.log(best / case["taught_step_seconds"])
        for name, ratios in (("best_over_plain", plain), ("best_over_taught", taught)):
            if ratios:
                curves[name].append((number, math.exp(sum(ratios.values()) / len(ratios))))
    return {name: curve for name, curve in curves.items() if curve and any(y for _, y in curve)}


def to_tensorboard(steps: list[dict[str, Any]], writer: Any, prefix: str = "policy/") -> None:
    """Gives each figure to `writer.add_scalar(name, value, step)`, as the SummaryWriter of
    torch.utils.tensorboard has it."""
    for name, curve in scalars(steps).items():
        for number, value in curve:
            writer.add_scalar(prefix + name, value, number)


def page(runs: dict[str, list[dict[str, Any]]]) -> str:
    """One HTML file, which loads nothing: a chart a curve, a line a run, and the last figures."""
    curves = {name: scalars(steps) for name, steps in runs.items()}
    colours = {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(runs)}
    charts = []
    for curve, title in CURVES.items():
        lines = {name: one[curve] for name, one in curves.items() if curve in one}
        if lines:
            charts.append(_chart(curve, title, colours, lines))
    legend = "".join(f'<li><span style="background:{colours[name]}"></span>{html.escape(name)}, '
                     f'{steps[-1]["step"]:,} steps</li>' for name, steps in runs.items())  # fmt: skip
    head = "".join(f"<th>{html.escape(title)}</th>" for title in CURVES.values())
    rows = "".join(
        f"<tr><th>{html.escape(name)}</th>"
        + "".join(f"<td>{one[curve][-1][1]:.4g}</td>" if curve in one else "<td>–</td>" for curve in CURVES)
        + "</tr>"
        for name, one in curves.items()
    )
    return _PAGE.format(legend=legend, charts="".join(charts), head=head, rows=rows)


def _chart(
    curve: str, title: str, colours: dict[str, str], lines: dict[str, list[tuple[int, float]]]
) -> str:
    points = [point for line in lines.values() for point in line]
    last = max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)
    span = high - low or abs(high) or 1.0

    def at(x: float, y: float) -> str:
        return (f"{_LEFT + (_WIDTH - _LEFT - 8) * x / max(last, 1):.1f},"
                f"{8 + (_HEIGHT - _BOTTOM - 8) * (high - y) / span:.1f}")  # fmt: skip

    drawn = "".join(
        f'<polyline stroke="{colours[name]}" '
        f'points="{" ".join(at(x, y) for x, y in _thinned(line))}">'
        f"<title>{html.escape(name)}</title></polyline>"
        for name, line in lines.items()
    )
    base = _HEIGHT - _BOTTOM
    return (
        f'<figure id="{curve}"><figcaption>{html.escape(title)}</figcaption>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{html.escape(title)}, from {low:.4g} to {high:.4g}">'
        f'<path d="M{_LEFT} 8V{base}H{_WIDTH - 8}"/>{drawn}'
        f'<text x="{_LEFT - 6}" y="16" text-anchor="end">{high:.4g}</text>'
        f'<text x="{_LEFT - 6}" y="{base}" text-anchor="end">{low:.4g}</text>'
        f'<text x="{_WIDTH - 8}" y="{_HEIGHT - 6}" text-anchor="end">step {last:,}</text></svg></figure>'
    )


def _thinned(line: list[tuple[int, float]], most: int = 400) -> list[tuple[float, float]]:
    """Means of neighbours: a chart is no wider than so many points."""
    if len(line) <= most:
        return list(line)
    size = math.ceil(len(line) / most)
    parts = [line[i : i + size] for i in range(0, len(line), size)]
    return [(part[-1][0], sum(y for _, y in part) / len(part)) for part in parts]


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>heterog: training of a policy</title>
<style>
:root {{ color-scheme: light dark; --line: #8886; }}
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 1.5rem auto; max-width: 1000px; padding: 0 1rem; }}
h1 {{ font-size: 1.3rem; }}
ul {{ list-style: none; padding: 0; }}
li span {{ display: inline-block; width: 1em; height: .3em; margin-right: .5em; vertical-align: middle; }}
main {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 420px), 1fr)); gap: 1rem; }}
figure {{ margin: 0; }}
svg {{ width: 100%; }}
path {{ fill: none; stroke: var(--line); }}
polyline {{ fill: none; stroke-width: 1.6; }}
text {{ font-size: 11px; fill: currentColor; }}
.table {{ overflow-x: auto; }}
td, th {{ padding: .2rem .6rem; text-align: right; font-weight: normal; }}
thead th {{ border-bottom: 1px solid var(--line); vertical-align: bottom; }}
</style></head><body>
<h1>Training of a policy</h1>
<ul>{legend}</ul>
<main>{charts}</main>
<h2>Last step</h2>
<div class="table"><table><thead><tr><th></th>{head}</tr></thead><tbody>{rows}</tbody></table></div>
</body></html>
"""


def _summary(name: str, steps: list[dict[str, Any]]) -> str:
    curves = scalars(steps)
    found = [f"{CURVES[curve]} {curves[curve][-1][1]:.4g}" for curve in CURVES if curve in curves]
    return f"{name}: {steps[-1]['step']:,} steps; " + "; ".join(found)


def _write_events(runs: dict[str, list[dict[str, Any]]], folder: str) -> None:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise RunFailed("--tensorboard: the package tensorboard is not installed: "
                        "pip install tensorboard") from error  # fmt: skip
    for name, steps in runs.items():
        with SummaryWriter(str(Path(folder) / Path(name).name)) as writer:
            to_tensorboard(steps, writer)


def main(arguments: list[str] | None = None) -> int:
    parser = make_parser(
        prog="python -m heterog.training_curves",
        description="Shows the curves of `heterog train` and `heterog finetune --log`, of one run or "
        "several beside each other.",
        epilog="example: python -m heterog.training_curves runs/zoo --page curves.html",
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folder of `heterog train`, or a train.log")
    parser.add_argument("--page", metavar="FILE", help="write a page with charts")
    parser.add_argument("--tensorboard", metavar="FOLDER", help="write TensorBoard's events, a folder a run")
    options = parser.parse_args(arguments)
    try:
        runs = {run: read_training_log(run) for run in options.runs}
        if options.page:
            replace_file(options.page, page(runs).encode())
        if options.tensorboard:
            _write_events(runs, options.tensorboard)
    except HeterogError as error:
        print(f"heterog: error: {error}", file=sys.stderr)
        return error.code
    for name, steps in runs.items():
        print(_summary(name, steps))
    return 0


if __name__ == "__main__":
    sys.exit(main())
