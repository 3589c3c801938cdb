"""What pages say of the program is so: messages exist, and the script that runs commands can fail."""

import re
import sys
from pathlib import Path

import pytest
from messages import HOLE, all_messages, is_said, of_cpp, of_python

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import run_pages  # noqa: E402
from run_pages import Page, Wrong, compare, edit  # noqa: E402

TROUBLES = ROOT / "docs/troubleshooting.md"


def test_every_message_of_troubleshooting_is_one_of_the_program():
    blocks = re.findall(r"^```text\n(.*?)^```", TROUBLES.read_text(encoding="utf-8"), re.M | re.S)
    shown = [line for block in blocks for line in block.splitlines()]
    assert len(shown) > 20
    messages = all_messages()
    assert [line for line in shown if not is_said(line, messages)] == []


def test_messages_are_read_from_sources():
    text = '// "not this"\nfail("{}: no "\n  "such {0:.1f} file\\n");'
    assert of_cpp(text) == [f"{HOLE}: no such {HOLE} file\n"]
    text = 'def f(x):\n    "about"\n    raise E(f"{x}: no "\n        f"such {x!r}")\n'
    assert of_python(text) == [f"{HOLE}: no such {HOLE}", ": no such "]
    assert is_said("…: no such …", [f"{HOLE}: no such {HOLE}"])
    assert not is_said("…: no such thing", [f"{HOLE}: no such {HOLE}"])
    assert not is_said("such no", [f"{HOLE}: no such {HOLE}"])


def run(tmp_path, monkeypatch, text: str, **options) -> int:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    monkeypatch.chdir(work)
    return Page(page, **({"slow": False, "update": False} | options)).run(lambda line: None)


GOOD = """# A page
<!-- setup
value = 2
-->
```python
value += 1
```
<!-- file: numbers.txt -->
```text
1
2
```
<!-- edit: numbers.txt -->
```diff
 1
-2
+3
```
```console
$ cat \\
    numbers.txt
1
4
```
<!-- file: some.json -->
```json
{"a": 1, "b": {"c-d": 2}}
```
<!-- keys: some.json -->
```text
{"b": {"c-d": …}}
```
<!-- fails: 3 -->
```sh
exit 3
```
<!-- not run: never -->
```sh
false
```
<!-- slow: minutes -->
```sh
false
```
"""


def test_a_page_is_run_from_top_to_bottom(tmp_path, monkeypatch):
    assert run(tmp_path, monkeypatch, GOOD) == 8
    assert (tmp_path / "work/numbers.txt").read_text() == "1\n3\n"
    with pytest.raises(Wrong, match="exit code 1, not 0"):
        run(tmp_path, monkeypatch, GOOD, slow=True)


@pytest.mark.parametrize(
    "text, wrong",
    [
        ("```sh\ntrue\nfalse\ntrue\n```\n", "page.md:2: exit code 1"),
        ("<!-- fails: 2 -->\n```sh\ntrue\n```\n", "exit code 0, not 2"),
        ("<!-- file: f -->\n```text\n{\"a\": 1}\n```\n<!-- keys: f -->\n```text\n\"a\", \"b\": 2\n```\n", "f: no key b"),
        ("```python\n1 / 0\n```\n", "ZeroDivisionError"),
        ("```python\nvalue = …\n```\n", "SyntaxError"),
        ("```console\n$ echo a b 7\na c 7\n```\n", "'a c #' was not printed"),
        ("```console\n$ printf 'a\\nb\\n'\na\n```\n", "1 lines are shown, 2 printed"),
        ("```\nheterog plan\n```\n", "looks like a command"),
        ("```shell\ntrue\n```\n", "no language"),
        ("<!-- not run -->\n```sh\ntrue\n```\n", "is no mark"),
        ("<!-- slow: for nothing -->\nA sentence.\n", "stands before no block"),
    ],
)
def test_what_is_wrong_on_a_page_is_told(tmp_path, monkeypatch, text, wrong):
    with pytest.raises(Wrong, match=re.escape(wrong)):
        run(tmp_path, monkeypatch, text)


def test_a_command_that_does_not_end_is_ended(monkeypatch):
    monkeypatch.setattr(run_pages, "LIMIT_SECONDS", 1)
    with pytest.raises(Wrong, match="not done after 1 s"):
        run_pages.shell("sleep 60", "page.md:1")


def test_output_is_compared_by_its_words():
    compare(["step 1.5 ms", "…", "end"], ["step 27.25  ms", "", "other", "end"], "here")
    with pytest.raises(Wrong):
        compare(["a", "…", "b"], ["b", "a"], "here")


def test_update_writes_what_was_printed(tmp_path, monkeypatch):
    run(tmp_path, monkeypatch, "```console\n$ printf '1\\n2\\n3\\n4\\n'\nx\n…\ny\n```\n", update=True)
    assert (tmp_path / "page.md").read_text() == "```console\n$ printf '1\\n2\\n3\\n4\\n'\n1\n…\n4\n```\n"


def test_an_edit_fits_in_one_place(tmp_path):
    path = tmp_path / "script.py"
    path.write_text("a\na\nb\n")
    with pytest.raises(Wrong, match="2 times"):
        edit(path, " a\n+c", "here")
    edit(path, " a\n-b\n+c", "here")
    assert path.read_text() == "a\na\nc\n"
