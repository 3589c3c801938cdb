"""Draws the pictures of docs/pictures: the whole of heterog, and two plans as time lines.

    .venv/bin/python scripts/pictures.py [overview] [timelines]

`timelines` makes two plans of VGG-19 and draws the Chrome traces of their simulated steps; it needs the
program (HETEROG_BIN, or build/release/bin/heterog). A viewer that prefers dark pages gets light letters on
a dark ground, any other dark letters on a light one.
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "docs" / "pictures"

# Colours by what they show, light and dark: enough contrast with the ground of either.
STYLE = """
  svg { font: 13px Helvetica, Arial, sans-serif }
  .ground { fill: #ffffff; stroke: #d0d7de }
  text { fill: #1f2328 }
  .quiet { fill: #59636e }
  .folder { font: 12px Menlo, Consolas, monospace; fill: #0550ae }
  .bold { font-weight: bold }
  .box { fill: #f6f8fa; stroke: #59636e }
  .outer { fill: none; stroke: #59636e; stroke-dasharray: 4 3 }
  .arrow { fill: none; stroke: #59636e; stroke-width: 1.5 }
  .tip { fill: #59636e }
  .idle { fill: #eaeef2 }
  .forward { fill: #54aeff }
  .backward { fill: #0550ae }
  .rest { fill: #2da44e }
  .wire { fill: #bf8700 }
  .end { stroke: #cf222e; stroke-width: 1.5 }
  .grid { stroke: #d0d7de }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #0d1117; stroke: #3d444d }
    text { fill: #f0f6fc }
    .quiet { fill: #9198a1 }
    .folder { fill: #79c0ff }
    .box { fill: #151b23; stroke: #9198a1 }
    .outer, .arrow { stroke: #9198a1 }
    .tip { fill: #9198a1 }
    .idle { fill: #262c36 }
    .forward { fill: #a5d6ff }
    .backward { fill: #388bfd }
    .rest { fill: #3fb950 }
    .wire { fill: #d29922 }
    .end { stroke: #f85149 }
    .grid { stroke: #3d444d }
  }
"""


def picture(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    """An SVG of this many pixels, on a ground of its own. `title` is for those who cannot see it."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img">\n<title>{escape(title)}</title>\n'
        f"<style>{STYLE}</style>\n"
        + rectangle(0.5, 0.5, width - 1, height - 1, "ground", rounded=8)
        + "".join(parts)
        + "</svg>\n"
    )


def number(value: float) -> str:
    """Pixels, to a tenth."""
    return f"{value:.1f}".removesuffix(".0")


def rectangle(x: float, y: float, width: float, height: float, kind: str, rounded: int = 0) -> str:
    corner = f' rx="{rounded}"' if rounded else ""
    return (
        f'<rect class="{kind}" x="{number(x)}" y="{number(y)}" width="{number(width)}" '
        f'height="{number(height)}"{corner}/>\n'
    )


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """One line, whose letters stand on `y`. `anchor` is start, middle or end of it at `x`."""
    of_kind = f' class="{kind}"' if kind else ""
    return (
        f'<text{of_kind} x="{number(x)}" y="{number(y)}" text-anchor="{anchor}">{escape(words)}</text>\n'
    )


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return (
        f'<line class="{kind}" x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}"/>\n'
    )


def arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    """From one point to another, straight along one axis."""
    sideways = abs(x2 - x1) >= abs(y2 - y1)
    sign = 1 if (x2 - x1 if sideways else y2 - y1) > 0 else -1
    back = -7 * sign
    wings = [(x2 + back, y2 - 4), (x2 + back, y2 + 4)] if sideways else [(x2 - 4, y2 + back), (x2 + 4, y2 + back)]
    tip = " ".join(f"{number(x)},{number(y)}" for x, y in [(x2, y2), *wings])
    return line(x1, y1, x2, y2, "arrow") + f'<polygon class="tip" points="{tip}"/>\n'


# --- the whole -------------------------------------------------------------------------------------


@dataclass
class Box:
    """A step of the way from a model to its training, and the folders of src that do it."""

    x: int
    y: int
    width: int
    height: int
    title: str
    lines: tuple[str, ...]
    folders: tuple[str, ...]  # rows of names

    def __post_init__(self):
        for folder in " ".join(self.folders).split():
            if not (ROOT / "src" / folder).is_dir():
                raise SystemExit(f"pictures.py: {self.title}: src has no folder {folder}")

    @property
    def right(self) -> int:
        return self.x + self.width

    @property
    def middle(self) -> float:
        return self.y + self.height / 2

    def draw(self) -> str:
        center = self.x + self.width / 2
        rows = [(self.title, "bold"), *((each, "quiet") for each in self.lines)]
        rows += [(each, "folder") for each in self.folders]
        top = self.middle - 8.5 * len(rows) + 13
        return rectangle(self.x, self.y, self.width, self.height, "box", rounded=6) + "".join(
            text(center, top + 17 * row, words, kind, "middle") for row, (words, kind) in enumerate(rows)
        )


def overview() -> str:
    """Model and machines → groups and costs → search and policy against the simulator → plan → run."""
    model = Box(14, 44, 126, 104, "model", ("one step, traced", "from PyTorch"), ("graph", "operators"))
    machines = Box(14, 164, 126, 84, "machines", ("devices, links",), ("cluster",))
    problem = Box(166, 100, 116, 104, "problem", ("groups, costs", "of operators"), ("cost", "space"))
    search = Box(326, 68, 154, 68, "search, policy", (), ("search", "learn"))
    judge = Box(326, 184, 154, 68, "simulator", (), ("compiler", "sim oracle"))
    plan = Box(526, 100, 122, 104, "plan", ("strategy, order,", "prediction"), ("decide loading",))
    tasks = Box(676, 100, 104, 104, "compiler", ("tasks of", "each device"), ("compiler",))
    run = Box(808, 100, 108, 104, "run", ("a rank for", "each device"), ("runtime", "comm launch"))
    boxes = [model, machines, problem, search, judge, plan, tasks, run]
    parts = [
        text(14, 26, "From a model and machines to training by a plan", "bold"),
        text(916, 26, "folders of src", "folder", "end"),
        rectangle(308, 42, 190, 222, "outer", rounded=8),
        text(403, 60, "each strategy is tried", "quiet", "middle"),
        *(box.draw() for box in boxes),
        arrow(model.right, 128, problem.x, 128),
        arrow(machines.right, 184, problem.x, 184),
        arrow(problem.right, problem.middle, 308, problem.middle),
        arrow(388, 136, 388, 184),
        text(382, 165, "strategy", "quiet", "end"),
        arrow(418, 184, 418, 136),
        text(424, 157, "step time,", "quiet"),
        text(424, 173, "memory", "quiet"),
        arrow(498, plan.middle, plan.x, plan.middle),
        arrow(plan.right, plan.middle, tasks.x, tasks.middle),
        arrow(tasks.right, tasks.middle, run.x, run.middle),
    ]
    return picture(930, 278, "From a model and machines to training by a plan", parts)


# --- two plans as time lines -----------------------------------------------------------------------

Interval = tuple[float, float]  # begin and end, in seconds of the step


@dataclass
class Lane:
    """What a device or a machine's network card does in a step, by class of STYLE."""

    label: str
    busy: dict[str, list[Interval]]
    thin: bool = False


@dataclass
class Timeline:
    """A simulated step of a plan."""

    title: str
    lanes: list[Lane]
    end: float  # seconds


def joined(intervals: Iterable[Interval], gap: float) -> list[Interval]:
    """The same time, in order, with neighbours that are at most `gap` apart made one."""
    found: list[Interval] = []
    for begin, end in sorted(intervals):
        if found and begin <= found[-1][1] + gap:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def samples_of(event: dict) -> int:
    begin, end = event["args"]["samples"].strip("[)").split(", ")
    return int(end) - int(begin)


def lanes_of(trace: dict, phases: dict[str, str]) -> list[Lane]:
    """A lane for each device of a Chrome trace, and one for the network card of each machine below its
    devices. `phases` has the phase of each op by its name."""
    named = {"process_name": {}, "thread_name": {}}
    for event in trace["traceEvents"]:
        if event["ph"] == "M" and event["name"] in named:
            named[event["name"]][event["pid"], event.get("tid")] = event["args"]["name"]
    devices = {pid: name for (pid, _), name in named["process_name"].items() if "/" in name}
    events: dict[str, list[dict]] = {}  # of a device's computation, or of one direction of a link
    for event in trace["traceEvents"]:
        if event["ph"] != "X":
            continue
        thread = named["thread_name"][event["pid"], event["tid"]]
        device = devices.get(event["pid"])
        if device and thread == "compute":
            events.setdefault(device, []).append(event)
        elif not device:
            events.setdefault(thread, []).append(event)

    def seconds(event: dict) -> Interval:
        return event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6

    lanes = []
    machines = dict.fromkeys(name.split("/")[0] for _, name in sorted(devices.items()))
    for machine in machines:
        for _, device in sorted(devices.items()):
            if device.split("/")[0] != machine:
                continue
            busy: dict[str, list[Interval]] = {"forward": [], "backward": [], "rest": []}
            for event in events[device]:
                busy[phases.get(event["name"], "rest")].append(seconds(event))
            model = device.split("(")[1].rstrip(")")
            lanes.append(Lane(f"{model}, {samples_of(events[device][0])} samples", busy))
        wires = [*events.get(f"{machine}/nic.out", []), *events.get(f"{machine}/nic.in", [])]
        lanes.append(Lane("network card", {"wire": [seconds(event) for event in wires]}, thin=True))
    return lanes


LEFT, RIGHT, LANE, THIN = 206, 884, 17, 9  # pixels
TICK = 0.05  # seconds


def draw_timeline(timeline: Timeline, top: float, pixels_per_second: float) -> tuple[str, float]:
    """The lanes from `top` on, and where they end."""
    parts = [text(14, top + 14, timeline.title, "bold")]
    y = top + 24
    for lane in timeline.lanes:
        height = THIN if lane.thin else LANE
        parts.append(text(LEFT - 8, y + (9 if lane.thin else 12), lane.label, "quiet", "end"))
        parts.append(rectangle(LEFT, y, timeline.end * pixels_per_second, height - 3, "idle"))
        for kind, intervals in lane.busy.items():
            for begin, end in joined(intervals, 0.4 / pixels_per_second):
                width = (end - begin) * pixels_per_second
                if width >= 0.1:
                    parts.append(rectangle(LEFT + begin * pixels_per_second, y, width, height - 3, kind))
        y += height + (6 if lane.thin else 0)
    end = LEFT + timeline.end * pixels_per_second
    parts.append(line(end, top + 20, end, y - 4, "end"))
    parts.append(text(end, top + 14, f"{1000 * timeline.end:.0f} ms", "bold", "end"))
    return "".join(parts), y


def draw_timelines(title: str, timelines: list[Timeline]) -> str:
    """Below each other, on one axis of time."""
    scale = (RIGHT - LEFT) / max(each.end for each in timelines)
    parts = [text(14, 26, title, "bold")]
    x = 14
    shown = [("forward", "forward pass"), ("backward", "backward pass"), ("rest", "sums and updates"),
             ("wire", "network card busy"), ("idle", "idle")]  # fmt: skip
    for kind, words in shown:
        parts += [rectangle(x, 38, 12, 12, kind), text(x + 18, 49, words, "quiet")]
        x += 36 + 8 * len(words)
    y: float = 62
    for timeline in timelines:
        drawn, y = draw_timeline(timeline, y, scale)
        parts.append(drawn)
        y += 10
    for tick in range(int(max(each.end for each in timelines) / TICK) + 1):
        at = LEFT + tick * TICK * scale
        parts += [line(at, y - 6, at, y, "grid"), text(at, y + 13, f"{1000 * tick * TICK:.0f}", "quiet", "middle")]
    parts.append(text(LEFT - 8, y + 13, "ms", "quiet", "end"))
    return picture(900, int(y) + 26, title, parts)


def heterog(*arguments: str | Path) -> None:
    program = os.environ.get("HETEROG_BIN") or ROOT / "build" / "release" / "bin" / "heterog"
    subprocess.run([program, *arguments], check=True, stdout=subprocess.DEVNULL, cwd=ROOT)


def traced(graph: Path, cluster: Path, batch: int, planner: str) -> dict:
    """The Chrome trace of the simulated step of this planner's plan."""
    with tempfile.TemporaryDirectory() as folder:
        plan, trace = Path(folder) / "plan.json", Path(folder) / "trace.json"
        problem = ("--graph", graph, "--cluster", cluster)
        heterog("plan", *problem, "--batch", str(batch), "--planner", planner, "--out", plan)
        heterog("simulate", *problem, "--plan", plan, "--trace", trace)
        return json.loads(trace.read_text(encoding="utf-8"))


def timelines() -> str:
    """VGG-19 on eight GPUs of three kinds, the case of README."""
    graph = ROOT / "models" / "vgg19.json.gz"
    cluster = ROOT / "configs" / "clusters" / "heterog-8gpu.json"
    phases = {op["name"]: op["phase"] for op in json.loads(gzip.decompress(graph.read_bytes()))["ops"]}
    phases = {name: phase for name, phase in phases.items() if phase != "update"}
    drawn = []
    for planner, title in [("ev-ar", "Even data parallelism, all-reduce"), ("portfolio", "The plan of heterog")]:
        lanes = lanes_of(traced(graph, cluster, 192, planner), phases)
        end = max(end for lane in lanes for each in lane.busy.values() for _, end in each)
        drawn.append(Timeline(title, lanes, end))
    return draw_timelines("One step of VGG-19, 192 samples, on eight GPUs of three kinds, simulated", drawn)


PICTURES = {"overview": overview, "timelines": timelines}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PICTURES)}; without one, all")
    names = parser.parse_args().names or list(PICTURES)
    OUT.mkdir(exist_ok=True)
    for name in names:
        if name not in PICTURES:
            parser.error(f"no picture {name}; known: {', '.join(PICTURES)}")
        (OUT / f"{name}.svg").write_text(PICTURES[name](), encoding="utf-8")
        print(f"docs/pictures/{name}.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
