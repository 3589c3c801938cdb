"""The page of `heterog report` in a browser: it loads, shows every plan, and no script fails."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from program import find_program

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium: apt-get install chromium (docs/dependencies.md)"
)
ROOT = Path(__file__).resolve().parents[2]
FILES = [
    f"--graph={ROOT}/models/lenet5-tiny.json.gz",
    f"--cluster={ROOT}/configs/clusters/local-2cpu.json",
]

# In front of the page's own script: what fails is noted.
NOTES = """<script>
window.failed = [];
addEventListener('error', (e) => failed.push(String(e.message)));
const complain = console.error;
console.error = (...words) => { failed.push(words.join(' ')); complain(...words); };
</script>"""

# Behind it: every plan is chosen, everything that can be pressed is, and what was seen is left in
# the page.
VISIT = """<script>
const seen = {opened: document.getElementById('plan-picker').value, plans: [], failed,
  scheme: getComputedStyle(document.documentElement).colorScheme};  // before it is switched
try {
  const picker = document.getElementById('plan-picker');
  for (const option of picker.options) {
    picker.value = option.value;
    picker.dispatchEvent(new Event('change'));
    seen.plans.push([option.textContent, document.querySelector('#tiles b').textContent]);
  }
  for (const button of document.querySelectorAll('button, input[type=checkbox]')) button.click();
  const line = document.getElementById('timeline'), box = line.getBoundingClientRect();
  line.setPointerCapture = () => {};
  const at = (type, id, x, kind) => line.dispatchEvent(new PointerEvent(type,
    {pointerId: id, pointerType: kind, clientX: box.left + x, clientY: box.top + 30}));
  document.getElementById('zoom-all').click();
  const before = view.to - view.from;
  at('pointerdown', 1, 250, 'touch'); at('pointerdown', 2, 350, 'touch');
  at('pointermove', 2, 450, 'touch'); at('pointerup', 1, 250, 'touch'); at('pointerup', 2, 450, 'touch');
  seen.pinched = before / (view.to - view.from);
  seen.legend = document.getElementById('legend').textContent;
} catch (error) { failed.push(String(error)); }
seen.wide = document.documentElement.scrollWidth > innerWidth;
// What is cut off at the right, or has to be pushed aside to be read.
seen.cut = [...document.querySelectorAll('.scroll, .card, .tile, .tools, nav, td, th')]
  .filter((part) => part.scrollWidth > part.clientWidth + 1).map((part) => part.textContent.slice(0, 40));
const left = document.createElement('pre');
left.id = 'seen';
left.textContent = JSON.stringify(seen);
document.body.append(left);
</script>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    for planner in ["cp-ps", "single"]:
        run("plan", *FILES, "--batch=8", f"--planner={planner}", f"--out={folder}/{planner}.json")
    plans = [f"{folder}/cp-ps.json", f"{folder}/single.json"]
    run("report", *FILES, "--plan", *plans, f"--out={folder}/page.html")
    return folder / "page.html"


def run(*words):
    subprocess.run([find_program(), *words], check=True, capture_output=True, cwd=ROOT)


def visit(page, folder, width, broken="", scheme="light"):
    text = page.read_text()
    text = text.replace("<head>", "<head>" + NOTES, 1).replace("</body>", broken + VISIT + "</body>", 1)
    visited = folder / "visited.html"
    visited.write_text(text)
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={folder}/profile",
        f"--window-size={width},900",
        f"--blink-settings=preferredColorScheme={['dark', 'light'].index(scheme)}",
        "--dump-dom",
        visited.as_uri(),
    ]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout
    found = re.search(r'<pre id="seen">(.*?)</pre>', shown, re.DOTALL)
    assert found, shown[-2000:]
    return json.loads(found[1].replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&"))


@pytest.mark.parametrize("width, scheme", [(500, "light"), (900, "dark"), (1600, "light")])
def test_the_page_opens_on_the_best_plan_and_shows_every_other(page, tmp_path, width, scheme):
    seen = visit(page, tmp_path, width, scheme=scheme)
    assert seen["failed"] == []
    assert seen["scheme"] == scheme
    assert [name for name, _ in seen["plans"]] == ["cp-ps.json", "single.json"]
    steps = [float(step.split()[0]) for _, step in seen["plans"]]
    assert steps[0] != steps[1]
    assert int(seen["opened"]) == steps.index(min(steps))
    assert seen["pinched"] == pytest.approx(2, rel=0.05)
    assert "critical path" in seen["legend"]
    assert not seen["wide"]
    assert seen["cut"] == []


def test_a_script_that_fails_is_seen(page, tmp_path):
    seen = visit(page, tmp_path, 900, "<script>data.plans[0].lanes = null;</script>")
    assert seen["failed"]
