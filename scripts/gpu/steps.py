"""Steps of the GPU kit: each within its own time and what is left of all, none ends the others, and
what was found is kept after each. Threads may run steps side by side.

Python's library alone: it runs on a bare machine.
"""

import concurrent.futures
import contextlib
import dataclasses
import io
import os
import re
import shutil
import signal
import subprocess
import tarfile
import tempfile
import threading
import time
from pathlib import Path


@dataclasses.dataclass
class Outcome:
    name: str
    code: int | None  # None: there was no time for it
    seconds: float
    said: str  # standard output and error

    @property
    def last_line(self) -> str:
        lines = [line for line in self.said.splitlines() if line.strip()]
        return lines[-1].replace("\t", " ")[:150] if lines else ""


def run_for(command, seconds, environment):
    """(exit code, what it said). A command that takes longer is ended with all that it started: 124."""
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(
            command, shell=isinstance(command, str), stdin=subprocess.DEVNULL, stdout=said,
            stderr=subprocess.STDOUT, start_new_session=True, env=environment,
            executable="/bin/bash" if isinstance(command, str) else None,
        )  # fmt: skip
        try:
            code = child.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            code = 124
        # What the command left behind would go on beside the next step.
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        child.wait()
        said.seek(0)
        return code, said.read().decode(errors="replace")


class Steps:
    """Runs steps and keeps what they say.

    results: a folder that steps write to; packed into out/results.tgz after each step, beside
    out/steps.tsv (name, exit code, seconds, last line) and out/log.txt (all that was said).
    only: a pattern; steps that it is not found in are passed over, unless they are needed.
    names: what is kept in place of folders of this machine, by their paths.
    """

    def __init__(self, out, limit, environment, only="", names=None):
        self.out = Path(out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.results = Path(tempfile.mkdtemp(prefix="heterog-gpu-"))
        self.environment = environment
        self.begin, self.limit = time.monotonic(), limit
        self.rows: list[tuple[str, str, str, str]] = []
        self.only = re.compile(only)
        self.keeping = threading.Lock()
        self.names = {str(self.results): "RESULTS"} | (names or {})

    def left(self) -> float:
        """Seconds; five are kept for packing."""
        return self.limit - 5 - (time.monotonic() - self.begin)

    def step(self, name, seconds, command, needed=False) -> Outcome:
        """command: words, or a line for bash."""
        begin = time.monotonic()
        if not needed and not self.only.search(name):
            return Outcome(name, None, 0, "passed over")
        if self.left() < 3:
            return self._keep(Outcome(name, None, 0, "no time was left"))
        code, said = run_for(command, min(seconds, self.left()), self.environment)
        return self._keep(Outcome(name, code, time.monotonic() - begin, said))

    def many(self, name, seconds, at_once, lines) -> Outcome:
        """Lines for bash, so many at a time; passes if all do. Each has a minute at most."""
        begin = time.monotonic()
        if not self.only.search(name):
            return Outcome(name, None, 0, "passed over")
        end = begin + min(seconds, self.left())

        def one(line):
            rest = min(60, end - time.monotonic())
            return (line, None, "no time was left") if rest < 1 else (line, *run_for(line, rest, self.environment))

        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            found = list(pool.map(one, lines))
        said = []
        for line, code, text in found:
            tail = text.strip().splitlines()
            said.append(f"[{'-' if code is None else code}] {line}: {tail[-1][:160] if tail else ''}")
            said += [] if code == 0 else ["    " + each for each in tail[-15:]]
        passed = sum(code == 0 for _, code, _ in found)
        said.append(f"{passed} of {len(found)} passed")
        return self._keep(Outcome(name, int(passed != len(found)), time.monotonic() - begin, "\n".join(said)))

    def _keep(self, outcome) -> Outcome:
        with self.keeping:
            return self._keep_alone(outcome)

    def _keep_alone(self, outcome) -> Outcome:
        code = "-" if outcome.code is None else str(outcome.code)
        for path, name in self.names.items():
            outcome.said = outcome.said.replace(path, name)
        row = (outcome.name, code, f"{outcome.seconds:.0f}", outcome.last_line)
        self.rows.append(row)
        print("\t".join(row), flush=True)
        (self.results / f"{outcome.name}.txt").write_text(outcome.said)
        with open(self.out / "log.txt", "a") as log:
            log.write(f"\n===== {outcome.name}, code {code}, {outcome.seconds:.1f} s\n{outcome.said}")
        write(self.out / "steps.tsv", "".join("\t".join(each) + "\n" for each in self.rows))
        packed = self.out / "results.tgz.new"
        with tarfile.open(packed, "w:gz", compresslevel=3) as archive:
            for path in sorted(self.results.rglob("*")):
                with contextlib.suppress(OSError):  # a step beside this one took it away, or it is no file
                    held = path.read_bytes()
                    entry = tarfile.TarInfo(f"results/{path.relative_to(self.results)}")
                    entry.size, entry.mtime = len(held), int(path.stat().st_mtime)
                    archive.addfile(entry, io.BytesIO(held))
        packed.rename(self.out / "results.tgz")
        return outcome

    def failed(self) -> list[str]:
        return [row[0] for row in self.rows if row[1] not in ("0", "-")]

    def close(self):
        shutil.rmtree(self.results, ignore_errors=True)


def write(path: Path, text: str) -> None:
    new = path.with_suffix(path.suffix + ".new")
    new.write_text(text)
    new.rename(path)
