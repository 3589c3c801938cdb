"""Runs what pages tell their readers to run: every command and every block of Python, literally.

    PYTHON scripts/run_pages.py README.md docs/client.md [--slow] [--update] [--times] [--read]

PYTHON is that of an environment in which the wheel is installed (scripts/check_wheel.py makes one).
Each page is one process, in an empty folder of its own, from top to bottom:

    ```sh        commands, run by bash, which stops at the first that fails
    ```console   lines that begin with "$ " are commands; what follows is compared with what they
                 print: the words, line by line; numbers may differ, and a line "…" stands for any
    ```python    run in one Python session a page
    others       are shown alone

A comment before a block says what else to do with it:

    <!-- file: NAME -->           the block is written to this file
    <!-- edit: NAME -->           the block, a ```diff, is made in this file
    <!-- keys: FILE … -->         an excerpt of a file: its keys all stand in these files
    <!-- not run: REASON -->      it needs what a test has not: GPUs, hosts, a checkout
    <!-- slow: REASON -->         run with --slow alone
    <!-- output: OF WHAT -->      the commands are run, and what they print is not compared
    <!-- fails: CODE -->          the last command ends with this exit code
    <!-- setup                    Python (or, after "setup sh", commands) that the page's readers have
    …                             in their own scripts, and that it does not show
    -->

A block without a language that holds a command is an error: say what it is. --update writes what
commands of ```console printed into the page; --read runs nothing, and only says whether each block and
mark can be read.
"""

import argparse
import contextlib
import gzip
import io
import linecache
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

LIMIT_SECONDS = 900  # of a block that never ends
MARK = re.compile(r"<!-- (file|edit|keys|not run|slow|output|fails): (.+?) -->")
COMMAND = re.compile(
    r"(\$ |heterog |torchrun |pip |python |srun |mpirun |sudo |cmake |ssh |scp |git "
    r"|(\./)?(scripts|build|\.venv)/)"
)
SHOWN = {"text", "json", "diff", "jsonc", "cpp", "bash-session"}


@dataclass
class Block:
    """A piece of a page that is run, or shown."""

    page: str
    line: int  # of its first line of text, from 1
    language: str
    text: str
    marks: dict[str, str] = field(default_factory=dict)


class Wrong(Exception):
    """What a block does is not what its page says."""


def read_blocks(page: str, text: str) -> list[Block]:
    blocks, marks, lines = [], {}, text.split("\n")
    number = 0
    while number < len(lines):
        line = lines[number]
        if mark := MARK.fullmatch(line.strip()):
            marks[mark[1]] = mark[2]
        elif line in ("<!-- setup", "<!-- setup sh"):
            end = lines.index("-->", number)
            language = "sh" if line.endswith("sh") else "python"
            blocks.append(Block(page, number + 2, language, "\n".join(lines[number + 1 : end])))
            number = end
        elif line.startswith("<!--") and re.match(r"<!-- ?(setup|file|edit|keys|not run|slow|output|fails)\b", line):
            raise Wrong(f"{page}:{number + 1}: {line!r} is no mark of scripts/run_pages.py")
        elif line.startswith("```"):
            end = lines.index("```", number + 1)
            blocks.append(
                Block(page, number + 2, line[3:].strip(), "\n".join(lines[number + 1 : end]), marks)
            )
            marks, number = {}, end
        elif line.strip():
            if marks:
                raise Wrong(f"{page}:{number + 1}: a mark {marks} stands before no block")
        number += 1
    for block in blocks:
        check_language(block)
    return blocks


def check_language(block: Block) -> None:
    if block.language in ("sh", "console", "python") or block.language in SHOWN:
        return
    if block.language:
        raise Wrong(f"{block.page}:{block.line}: ```{block.language}: no language of this script")
    for number, line in enumerate(block.text.split("\n")):
        if COMMAND.match(line):
            raise Wrong(
                f"{block.page}:{block.line + number}: {line!r} looks like a command; write ```sh or "
                "```console, or ```text if it is none"
            )


# A machine that runs tests may be too busy to be measured, which is no fault of a page.
PROFILE_ANYHOW = """heterog() {
  if [[ "${1:-}" == profile ]]; then command heterog "$@" --force; else command heterog "$@"; fi
}
"""


def shell(command: str, where: str, expected: int = 0) -> str:
    """What the command prints, errors too."""
    process = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", PROFILE_ANYHOW + command],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise Wrong(f"{where}: not done after {LIMIT_SECONDS} s:\n{command}") from None
    if process.returncode != expected:
        raise Wrong(
            f"{where}: exit code {process.returncode}, not {expected}:\n{command}\n{output[-3000:]}"
        )
    return output


def commands_of(text: str) -> list[tuple[str, list[str]]]:
    """The commands of a block ```console, and the lines shown after each."""
    found: list[tuple[str, list[str]]] = []
    lines = iter(text.split("\n"))
    for line in lines:
        if line.startswith("$ "):
            command = line[2:]
            while command.endswith("\\"):
                command += "\n" + next(lines)
            found.append((command, []))
        else:
            found[-1][1].append(line)
    return found


def edit(path: Path, difference: str, where: str) -> None:
    """Makes a change that is shown as the lines of a diff, which stand there once."""
    lines = difference.split("\n")
    before, after = ("\n".join(line[1:] for line in lines if not line.startswith(sign)) for sign in "+-")
    text = path.read_text(encoding="utf-8")
    if text.count(before + "\n") != 1:
        raise Wrong(f"{where}: {path} has these lines {text.count(before)} times:\n{before}")
    path.write_text(text.replace(before, after), encoding="utf-8")


def check_keys(excerpt: str, files: list[str], where: str) -> None:
    keys = re.compile(r'"([\w-]+)": ?')
    known: set[str] = set()
    for file in files:
        content = Path(file).read_bytes()
        text = gzip.decompress(content) if file.endswith(".gz") else content
        known.update(keys.findall(text.decode("utf-8")))
    if missing := sorted(set(keys.findall(excerpt)) - known):
        raise Wrong(f"{where}: {', '.join(files)}: no key {', '.join(missing)}")


def words(line: str) -> str:
    """What two prints of a line have in common."""
    return re.sub(r"\s+", " ", re.sub(r"[-+]?\d[\d.,e+-]*", "#", line)).strip()


def compare(shown: list[str], printed: list[str], where: str) -> None:
    expected = [words(line) for line in shown if line.strip()]
    actual = [words(line) for line in printed if line.strip()]
    if "…" not in expected and len(expected) != len(actual):
        raise Wrong(f"{where}: {len(expected)} lines are shown, {len(actual)} printed:\n" + "\n".join(printed))
    place = 0
    for line in expected:
        if line == "…":
            continue
        if line not in actual[place:]:
            raise Wrong(f"{where}: {line!r} was not printed, but:\n" + "\n".join(printed))
        place += actual[place:].index(line) + 1


def shown_again(shown: list[str], printed: list[str]) -> list[str]:
    """What a page shows of a new print: as many first and last lines as it did around a "…"."""
    if "…" not in shown:
        return printed
    first = shown.index("…")
    last = len(shown) - shown.index("…") - 1
    return printed[:first] + ["…"] + (printed[-last:] if last else [])


class Page:
    """One page being run in the folder where this process is."""

    def __init__(self, path: Path, slow: bool, update: bool):
        self.path = path
        self.slow = slow
        self.update = update
        self.session = {"__name__": "__main__"}
        self.text = path.read_text(encoding="utf-8")

    def run(self, say) -> int:
        """The number of blocks that were run."""
        blocks = read_blocks(self.path.name, self.text)
        done = 0
        for block in blocks:
            begun = time.monotonic()
            if self.run_block(block):
                done += 1
                say(f"  {block.page}:{block.line} {block.language}: {time.monotonic() - begun:.1f} s")
        return done

    def run_block(self, block: Block) -> bool:
        where = f"{block.page}:{block.line}"
        if "not run" in block.marks or ("slow" in block.marks and not self.slow):
            return False
        if "file" in block.marks:
            target = Path(block.marks["file"])
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text + "\n", encoding="utf-8")
            return True
        if "keys" in block.marks:
            check_keys(block.text, block.marks["keys"].split(), where)
        elif "edit" in block.marks:
            edit(Path(block.marks["edit"]), block.text, where)
        elif block.language == "sh":
            shell(block.text, where, int(block.marks.get("fails", 0)))
        elif block.language == "console":
            self.run_console(block, where)
        elif block.language == "python":
            self.run_python(block, where)
        else:
            return False
        return True

    def run_console(self, block: Block, where: str) -> None:
        again = []
        commands = commands_of(block.text)
        for number, (command, shown) in enumerate(commands):
            is_last = number == len(commands) - 1
            code = int(block.marks.get("fails", 0)) if is_last else 0
            text = shell(command, where, code).rstrip("\n")
            printed = text.split("\n") if text else []
            if not self.update and "output" not in block.marks:
                compare(shown, printed, where)
            again += ["$ " + command, *shown_again(shown, printed)]
        if self.update:
            self.text = self.text.replace(
                f"```console\n{block.text}\n```", "```console\n" + "\n".join(again) + "\n```"
            )
            self.path.write_text(self.text, encoding="utf-8")

    def run_python(self, block: Block, where: str) -> None:
        # With line numbers of the page, and as a source that inspect finds.
        source = "\n" * (block.line - 1) + block.text
        name = f"{self.path}#{block.line}"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                exec(compile_(source, name), self.session)
        except Exception as error:  # noqa: BLE001 - whatever a page's code raises is told
            import traceback

            trace = "".join(traceback.format_exception(error)[-12:])
            raise Wrong(f"{where}: {printed.getvalue()[-1000:]}{trace}") from error


compile_ = lambda source, name: compile(source, name, "exec")  # noqa: E731


def run_one(path: Path, options) -> int:
    """In this process: everything of one page."""
    with tempfile.TemporaryDirectory(prefix="heterog-page-") as folder:
        os.environ["XDG_CACHE_HOME"] = os.path.join(folder, ".cache")
        work = Path(folder) / "work"
        work.mkdir()
        os.chdir(work)
        sys.path.insert(0, str(work))
        say = print if options.times else lambda line: None
        try:
            done = Page(path, options.slow, options.update).run(say)
        except Wrong as error:
            print(error, flush=True)
            return 1
        finally:
            os.chdir("/")
    print(f"{path.name}: {done} blocks run", flush=True)
    return 0


def read_all(pages: list[Path]) -> int:
    """Says which of them cannot be read."""
    failed = 0
    for path in pages:
        try:
            read_blocks(str(path), path.read_text(encoding="utf-8"))
        except Wrong as error:
            print(error)
            failed = 1
    return failed


def environment() -> dict:
    """Of a user who has installed the wheel, and nothing of this checkout."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("HETEROG_", "PYTHON"))}  # fmt: skip
    kept["HETEROG_QUIET"] = "1"  # a slow machine says how far an export is, which no page shows
    kept["PATH"] = f"{Path(sys.executable).parent}:{kept['PATH']}"
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--slow", action="store_true", help="blocks marked slow too")
    parser.add_argument("--update", action="store_true", help="write what commands print into pages")
    parser.add_argument("--times", action="store_true", help="print what each block took")
    parser.add_argument("--read", action="store_true", help="run nothing")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        return read_all(options.pages)
    if options.one:
        return run_one(options.pages[0].resolve(), options)
    given = [flag for flag in ("slow", "update", "times") if getattr(options, flag)]
    failed = []
    for page in options.pages:
        begun = time.monotonic()
        command = [sys.executable, __file__, "--one", str(page), *(f"--{flag}" for flag in given)]
        if subprocess.run(command, env=environment()).returncode != 0:
            failed.append(page.name)
        print(f"  {time.monotonic() - begun:.0f} s", flush=True)
    if failed:
        print(f"FAILED: {', '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
