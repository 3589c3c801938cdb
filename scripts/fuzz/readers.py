"""Feeds damaged files of every kind that Python reads to what reads them, and counts how it ends.

    .venv/bin/python scripts/fuzz/readers.py --cases 20000 --seed 0 --jobs 2

As scripts/fuzz/files.py, which does so for the program; HETEROG_LIBRARY names the library. Cases run in
processes forked from one that has imported everything. Each must end within --seconds of processor time,
with exit code 0 (the damage was harmless), 2 and one line, or, where another machine or a plan is
asked, 3 or 4 and one line; without a traceback, within --peak bytes, and without an output where it
refuses. What a cache holds must be made anew. Files that break this are kept in --keep.
"""

import argparse
import collections
import concurrent.futures
import gc
import itertools
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

from reader_kinds import Kind, kinds, make_base  # noqa: E402


@dataclass
class Answer:
    code: int  # -1: the process ended instead
    seconds: float  # of the processor's time: others may be at work beside it
    peak: int
    stderr: str


def special(file: Path, rng: random.Random) -> None:
    """No plain file of a plain size in its place."""
    file.unlink()
    how = rng.randrange(4)
    if how == 0:
        file.mkdir()
    elif how == 1:
        with open(file, "wb") as sparse:
            sparse.truncate(1 << 40)
    elif how == 2:
        file.symlink_to("/dev/zero")
    else:
        file.symlink_to("nowhere")


def answer_of(kind: Kind, file: Path, folder: Path) -> Answer:
    """In this process, which the case may end."""
    begin = time.process_time()
    seconds = int(begin + OPTIONS.seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
    signal.alarm(int(30 * OPTIONS.seconds))  # for what waits without end
    Path("/proc/self/clear_refs").write_text("5")  # the peak of memory is from now on
    os.chdir(folder)
    for stream, name in ((1, "stdout"), (2, "stderr")):
        handle = os.open(name, os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(handle, stream)
        os.close(handle)
    code = 1
    try:
        code = kind.read(file)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001  what is looked for
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    said = Path("stderr").read_bytes().decode("utf-8", "replace")
    return Answer(code, time.process_time() - begin, _status("VmHWM"), said)


def _status(key: str) -> int:
    found = re.search(rf"^{key}:\s*(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found[1]) * 1024


def verdict(kind: Kind, answer: Answer, file: Path, folder: Path) -> str | None:
    """What is wrong with how a run ended; None: nothing."""
    lines = [line for line in answer.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("heterog: error: ")]
    if answer.code < 0:
        return answer.stderr
    if "Traceback" in answer.stderr:
        return f"a traceback: {lines[-1][:200]}"
    if answer.code not in kind.codes:
        return f"exit code {answer.code}"
    if answer.code and (len(errors) != 1 or len(lines) != 1):
        return f"exit code {answer.code} with {len(lines)} lines"
    if answer.code and len(errors[0]) > 1500:
        return "an error line of over 1,500 characters"
    if answer.code and not errors[0].isprintable():
        return "an error line that is not printable"
    if answer.code and any((place / name).exists() for name in kind.outputs for place in (folder, file.parent)):
        return "an output though it refuses"
    return f"took {answer.peak / 1e6:.0f} MB" if answer.peak > OPTIONS.peak else None


def place(kind: Kind, data: bytes | None, folder: Path, rng: random.Random) -> Path:
    """Puts the file where it is looked for; without data something that is no plain file."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    file = folder / kind.place
    if kind.beside:
        shutil.copytree(kind.beside, folder / kind.beside.name)
    file.write_bytes(data or b"")
    if data is None:
        special(file, rng)
    return file


OPTIONS = None  # of the workers, which are forked
KINDS: list[Kind] = []
BASE = Path()


def placed(number: int, folder: Path) -> tuple[Kind, Path]:
    """A case is the same for the same seed, number and commit."""
    rng = random.Random(f"{OPTIONS.seed} {number}")
    names = list(dict.fromkeys(kind.name for kind in KINDS))
    kind = rng.choice([kind for kind in KINDS if kind.name == names[number % len(names)]])
    whole = rng.choice(kind.samples).read_bytes()
    data = kind.damage(whole, rng)
    while data == whole:
        data = kind.damage(whole, rng)
    if rng.random() < 0.01 and kind.name not in ("cache", "ranks", "ssh"):
        data = None
    return kind, place(kind, data, folder, rng)


def cases(numbers: list[int]) -> list[tuple[str, Answer, str | None]]:
    """Runs cases one after the other in a process of their own; in another one from the case on that
    has ended it."""
    found: list[tuple[str, Answer, str | None]] = []
    folder = BASE / f"worker{os.getpid()}"
    while len(found) < len(numbers):
        ours, theirs = os.pipe()
        process = os.fork()
        if process == 0:
            _work(numbers[len(found) :], folder, theirs)
        os.close(theirs)
        with open(ours, "rb") as answers:
            found += (_unpacked(json.loads(line)) for line in answers)
        _, status = os.waitpid(process, 0)
        if os.WIFSIGNALED(status):
            late = os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGALRM)
            why = "did not end in time" if late else f"ended by signal {os.WTERMSIG(status)}"
            number = numbers[len(found)]
            kind, _ = placed(number, folder)
            _keep(kind, number, why, "", folder)
            found.append((kind.name, Answer(-1, OPTIONS.seconds, 0, why), why))
    return found


def _unpacked(line: list) -> tuple[str, Answer, str | None]:
    name, code, seconds, peak, wrong = line
    return name, Answer(code, seconds, peak, ""), wrong


def _work(numbers: list[int], folder: Path, pipe: int) -> None:
    try:
        most = _status("VmSize") + (4 << 30)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        for number in numbers:
            kind, file = placed(number, folder)
            answer = answer_of(kind, file, folder)
            wrong = verdict(kind, answer, file, folder)
            if wrong:
                _keep(kind, number, wrong, answer.stderr, folder)
            line = [kind.name, answer.code, answer.seconds, answer.peak, wrong]
            os.write(pipe, json.dumps(line).encode() + b"\n")
            if wrong:
                break  # the next one begins afresh
    except BaseException:  # noqa: BLE001  of this script
        os.write(2, traceback.format_exc().encode())
        os.kill(os.getpid(), signal.SIGKILL)
    finally:
        os._exit(0)


def _keep(kind: Kind, number: int, wrong: str, said: str, folder: Path) -> None:
    kept = OPTIONS.keep / f"{kind.name}-{number}"
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    (kept / "said").write_text(f"{wrong}\n{said[-20000:]}")
    file = folder / kind.place
    if file.is_file() and file.stat().st_size < 1 << 30:
        shutil.copy(file, kept / "file")


def check_whole() -> None:
    """Whole files must be taken: else damage would not be what is refused."""
    for kind in KINDS:
        folder = BASE / "whole"
        file = place(kind, kind.samples[0].read_bytes(), folder, random.Random(0))
        if os.fork() == 0:
            os._exit(answer_of(kind, file, folder).code)
        code = os.waitstatus_to_exitcode(os.wait()[1])
        if code != 0:
            sys.exit(f"{kind.name}: exit code {code} for the whole {file}\n{(folder / 'stderr').read_text()[:3000]}")


def report(results, seconds: float) -> int:
    codes: dict[str, collections.Counter] = {kind.name: collections.Counter() for kind in KINDS}
    finds, slowest, peak = 0, (0.0, ""), (0, "")
    said = 0.0
    for number, (name, answer, wrong) in results:
        if seconds() - said > 60:
            said = seconds()
            print(f"{number - OPTIONS.first} cases, {finds} failed, {said:.0f} s", flush=True)
        codes[name][answer.code] += 1
        slowest = max(slowest, (answer.seconds, f"{name} {number}"))
        peak = max(peak, (answer.peak, f"{name} {number}"))
        if wrong:
            finds += 1
            print(f"case {number} ({name}): {wrong}", flush=True)
    print(f"\n{'kind':14}{'cases':>8}{'code 0':>8}{'2':>8}{'3':>8}{'4':>8}{'other':>8}")
    for name, counts in codes.items():
        known = [counts[code] for code in (0, 2, 3, 4)]
        print(f"{name:14}{counts.total():8}" + "".join(f"{n:8}" for n in known) + f"{counts.total() - sum(known):8}")
    total = sum(counts.total() for counts in codes.values())
    print(f"slowest {slowest[0]:.1f} s ({slowest[1]}), peak {peak[0] / 1e6:.0f} MB ({peak[1]}), {seconds():.0f} s in all")
    print(f"\n{total - finds} passed, {finds} failed")
    return 1 if finds or total < OPTIONS.cases else 0


def main() -> int:
    global OPTIONS, KINDS, BASE
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--kinds", nargs="+", help="only these kinds of file")
    parser.add_argument("--seconds", type=float, default=20, help="processor time that a case may take")
    parser.add_argument("--peak", type=int, default=1_000_000_000, help="bytes of memory, PyTorch's among them")
    parser.add_argument("--keep", type=Path, default=ROOT / "out/fuzz_readers", help="folder for finds")
    parser.add_argument("--make-base", type=Path, help=argparse.SUPPRESS)
    OPTIONS = parser.parse_args()
    OPTIONS.keep = OPTIONS.keep.resolve()
    os.environ["OMP_NUM_THREADS"] = "1"
    if OPTIONS.make_base:
        make_base(OPTIONS.make_base)
        return 0
    with tempfile.TemporaryDirectory(prefix="heterog_fuzz_") as folder:
        BASE = Path(folder)
        subprocess.run([sys.executable, __file__, "--make-base", folder], check=True)
        from heterog.base.native import load_library

        load_library()
        KINDS = [kind for kind in kinds(BASE) if not OPTIONS.kinds or kind.name in OPTIONS.kinds]
        gc.freeze()  # forks then share what has been imported
        check_whole()
        begin = time.monotonic()
        last = OPTIONS.first + OPTIONS.cases
        chunks = [list(range(i, min(i + 100, last))) for i in range(OPTIONS.first, last, 100)]
        context = multiprocessing.get_context("fork")
        with concurrent.futures.ProcessPoolExecutor(OPTIONS.jobs, context) as pool:
            found = itertools.chain.from_iterable(pool.map(cases, chunks))
            return report(zip(range(OPTIONS.first, last), found, strict=True), lambda: time.monotonic() - begin)


if __name__ == "__main__":
    sys.exit(main())
