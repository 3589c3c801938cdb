"""The pictures of docs/pictures are those that scripts/pictures.py draws, and can be read on any ground."""

import re
import sys
import xml.etree.ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import pictures  # noqa: E402
from pictures import Box, Lane, Timeline, draw_timelines, joined, lanes_of  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"


def named(pid: int, name: str, tid: int | None = None) -> dict:
    kind = "process_name" if tid is None else "thread_name"
    return {"ph": "M", "name": kind, "pid": pid, "args": {"name": name}} | ({} if tid is None else {"tid": tid})


def event(pid: int, tid: int, name: str, begin: float, end: float) -> dict:
    """Of so many microseconds, on samples 8 to 19."""
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": begin, "dur": end - begin,
            "args": {"samples": "[8, 20)"}}  # fmt: skip


# Two machines of one device each, and their cards; device b/gpu0 stands first, as in traces of tasks.
TRACE = {
    "traceEvents": [
        named(1, "b/gpu0 (P4)"), named(1, "compute", 0), named(1, "collectives", 1),
        named(0, "a/gpu0 (T4)"), named(0, "compute", 0),
        named(9, "links"), named(9, "a/nic.out", 0), named(9, "a/nic.in", 1), named(9, "a/gpu0.out", 2),
        event(1, 0, "mm", 0, 50_000),
        event(1, 1, "all-reduce w", 50_000, 90_000),
        event(0, 0, "mm", 0, 20_000),
        event(0, 0, "mm_backward", 20_000, 60_000),
        event(0, 0, "update w", 90_000, 100_000),
        event(9, 0, "all-reduce w", 50_000, 80_000),
        event(9, 1, "all-reduce w", 60_000, 90_000),
        event(9, 2, "all-reduce w", 10_000, 90_000),
    ]
}  # fmt: skip
PHASES = {"mm": "forward", "mm_backward": "backward"}


def test_the_overview_is_the_one_that_is_drawn():
    assert (pictures.OUT / "overview.svg").read_text(encoding="utf-8") == pictures.overview()


def test_a_folder_that_is_not_there_is_no_part_of_the_overview():
    Box(0, 0, 10, 10, "run", (), ("runtime", "comm launch"))
    with pytest.raises(SystemExit, match="run: src has no folder lunch"):
        Box(0, 0, 10, 10, "run", (), ("runtime", "comm lunch"))


def test_pictures_are_known_and_shown():
    stored = {path.stem for path in pictures.OUT.iterdir()}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"!\[[^\]]+\]\(docs/pictures/(\w+)\.svg\)", readme)
    assert stored == set(pictures.PICTURES) == set(shown)


def test_intervals_are_joined_over_small_gaps():
    assert joined([(3, 4), (0, 1), (1.5, 2)], 0.5) == [(0, 2), (3, 4)]
    assert joined([(0, 5), (1, 2)], 0) == [(0, 5)]


def test_lanes_are_those_of_devices_and_cards():
    assert lanes_of(TRACE, PHASES) == [
        Lane("T4, 12 samples", {"forward": [(0, 0.02)], "backward": [(0.02, 0.06)], "rest": [(0.09, 0.1)]}),
        Lane("network card", {"wire": [(0.05, 0.08), (0.06, 0.09)]}, thin=True),
        Lane("P4, 12 samples", {"forward": [(0, 0.05)], "backward": [], "rest": []}),
        Lane("network card", {"wire": []}, thin=True),
    ]


def test_time_lines_share_one_axis():
    # 678 pixels for 0.2 s: 3390 a second.
    lane = Lane("T4", {"forward": [(0, 0.05)], "backward": [(0.1, 0.15)]})
    drawn = draw_timelines("title", [Timeline("slow", [lane], 0.2), Timeline("fast", [lane], 0.1)])
    root = xml.etree.ElementTree.fromstring(drawn)
    boxes = [each for each in root.iter(f"{SVG}rect") if float(each.get("x")) >= pictures.LEFT and float(each.get("y")) > 60]
    found = [(each.get("class"), each.get("x"), each.get("width")) for each in boxes]
    one = [("forward", "206", "169.5"), ("backward", "545", "169.5")]
    assert found == [("idle", "206", "678"), *one, ("idle", "206", "339"), *one]
    ends = [each.get("x1") for each in root.iter(f"{SVG}line") if each.get("class") == "end"]
    assert ends == ["884", "545"]
    assert {"200 ms", "100 ms"} <= {each.text for each in root.iter(f"{SVG}text")}


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.2) of #rrggbb."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("dark", [False, True])
def test_letters_can_be_read(dark):
    light_style, dark_style = pictures.STYLE.split("@media (prefers-color-scheme: dark)")
    style = dark_style if dark else light_style
    fills = dict(re.findall(r"^ *(\.?\w+) {.*?fill: (#\w{6})", style, re.M))
    for ground in (".ground", ".box"):
        for letters in ("text", ".quiet", ".folder"):
            low, high = sorted([luminance(fills[ground]), luminance(fills[letters])])
            assert (high + 0.05) / (low + 0.05) >= 4.5, (ground, letters)
