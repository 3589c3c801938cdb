"""Builds and runs every check and test, and counts them: the body of scripts/test.sh.

A step that cannot be counted case by case (the layer check, a build) counts as one case. A test
program that dies before it has reported counts as one failure.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The programs whose tests feed mutated files to the readers of graphs, clusters and plans, make
# the programs of ranks, and let processes and their threads meet; under the sanitizers they run
# whole.
ASAN_PROGRAMS = ["base_test", "cluster_test", "comm_test", "decide_test", "graph_test",
                 "launch_test", "mutate_graph_test", "program_test"]
# Some tests wait for processes that end, or for time to pass.
JOBS = os.cpu_count() + 1
# Seconds after which a test of Python's counts as one that hangs: it is ended, and its name printed.
# CTest does so with programs after 1,500.
TEST_HANGS = 600
TSAN_PROGRAMS = ["base_test", "comm_test"]  # and search_test, if all is to be thorough
# What each sanitizer runs of them. Address: not the files at the limits of readers, which are long and
# read by the same code as damaged ones. Threads: tests that have some; those of search say so in their names.
FILTERS = {
    "asan": "-Bounds.ValuesAreCounted*:GraphBounds.TenTimes*:GraphBounds.ArgumentsAreCounted",
    "tsan": ("*Thread*:BoundedCalls.*:Connections.*:Heartbeats.*:JobWatch.*:Lifelines.*:LocalStore.*:"
             "NotedSignals.*-ModuleSearch.*"),  # which takes minutes there
}


@dataclass
class Tally:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped


BEGIN = time.monotonic()


def note(text):
    print(f"\n== {text} (after {time.monotonic() - BEGIN:.0f} s)", flush=True)


def run(command, **environment):
    """Runs a command from the root; True if it succeeded."""
    command = [str(word) for word in command]
    return subprocess.run(command, cwd=ROOT, env=os.environ | environment).returncode == 0


def one(name, command):
    """A step that counts as one case."""
    note(name)
    ok = run(command)
    if not ok:
        print(f"FAILED: {name}", flush=True)
    return Tally(passed=int(ok), failed=int(not ok))


def build(preset, targets=()):
    folder = ROOT / "build" / preset
    return run(["cmake", "--preset", preset]) and run(["cmake", "--build", folder, "--", *targets])


def read_junit(file):
    """Counts a JUnit file of GoogleTest or pytest."""
    tally = Tally()
    for case in ElementTree.parse(file).getroot().iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            tally.failed += 1
        elif case.find("skipped") is not None or case.get("status") == "notrun":
            tally.skipped += 1
        else:
            tally.passed += 1
    return tally


def run_ctest(preset, selection=()):
    """Runs CTest in a build folder and counts the cases inside each of its programs."""
    folder = ROOT / "build" / preset
    reports = folder / "reports"
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir(parents=True)
    summary = reports / "ctest.junit"
    run(
        ["ctest", "--test-dir", folder, "--output-on-failure", "--output-junit", summary,
         "-j", JOBS, *selection],
        GTEST_OUTPUT=f"xml:{reports}/",
        GTEST_FILTER=FILTERS.get(preset, "*"),
        # Undefined behaviour ends a program, so that it fails; by default it is only printed.
        UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1",
    )
    tally = Tally()
    if not summary.exists():
        return Tally(failed=1)
    entries = ElementTree.parse(summary).getroot().findall("testcase")
    for entry in entries:
        report = reports / f"{entry.get('name')}_test.xml"
        if report.exists():
            cases = read_junit(report)
            # A program can pass its cases and still fail: a sanitizer's report, a leak.
            if entry.get("status") != "run" and cases.failed == 0:
                cases.failed += 1
            tally.add(cases)
        else:
            ok = entry.get("status") == "run"
            tally.add(Tally(passed=int(ok), failed=int(not ok)))
    return tally if entries else Tally(failed=1)


def cpp_tests(preset, programs=()):
    """Builds a preset and runs its tests; only the named programs, if any are named."""
    note(f"C++ tests, preset {preset}")
    if not build(preset, programs):
        print(f"FAILED: build of preset {preset}", flush=True)
        return Tally(failed=1)
    names = "|".join(program.removesuffix("_test") for program in programs)
    return run_ctest(preset, ["-R", f"^({names})$"] if names else [])


def python_tests(quick):
    note("Python tests")
    report = ROOT / "build" / "pytest.xml"
    report.unlink(missing_ok=True)
    marks = ["not slow"] * quick + ["not thorough"] * ("HETEROG_THOROUGH" not in os.environ)
    selection = ["-m", " and ".join(marks)] if marks else []
    ok = run(
        # A file stays on one worker, whose tests share what the file's fixtures have made. Workers
        # keep the cores busy, so PyTorch needs no second thread.
        [sys.executable, "-m", "pytest", "-q", "python/tests", f"--junitxml={report}",
         f"--numprocesses={JOBS}", "--dist=loadfile", "--durations=15",
         "-o", f"faulthandler_timeout={TEST_HANGS}", "-o", "faulthandler_exit_on_timeout=true", *selection],
        PYTHONPATH=str(ROOT / "python"),
        HETEROG_LIBRARY=str(ROOT / "build/dev/lib/libheterog.so"),
        HETEROG_BIN=str(ROOT / "build/dev/bin/heterog"),
        OMP_NUM_THREADS="1",
    )
    if not report.exists():
        return Tally(failed=1)
    tally = read_junit(report)
    if not ok and tally.failed == 0:
        tally.failed = 1
    return tally


def newest_torch():
    """The wheels beside the newest PyTorch of the package index. Without an answer of the index that
    is a test that was skipped, and says so."""
    note("The newest PyTorch")
    with tempfile.TemporaryDirectory() as folder:
        if not run(["scripts/build_wheel.sh"], HETEROG_BUILD="build/dev", HETEROG_DIST=folder):
            return Tally(failed=1)
        command = ["scripts/torch_versions.sh", "--wheels", folder, "newest"]
        code = subprocess.run(command, cwd=ROOT).returncode
    if code == 3:
        print("SKIPPED: the newest PyTorch, for want of a quick answer of the package index", flush=True)
    elif code != 0:
        print("FAILED: the newest PyTorch", flush=True)
    return Tally(passed=int(code == 0), failed=int(code not in (0, 3)), skipped=int(code == 3))


def damaged_files(cases):
    """Feeds damaged files of every kind to the whole program; counts as one case."""
    note("Damaged files")
    ok = build("dev", ["program_server"]) and run(
        [sys.executable, "scripts/fuzz/files.py", "--program", "build/dev/bin/program_server",
         "--cases", cases, "--jobs", os.cpu_count()])
    if not ok:
        print("FAILED: damaged files", flush=True)
    return Tally(passed=int(ok), failed=int(not ok))


def damaged_python_files(cases):
    """The same for what Python reads."""
    note("Damaged files for Python")
    ok = build("dev", ["heterog", "heterog_client"]) and run(
        [sys.executable, "scripts/fuzz/readers.py", "--cases", cases, "--jobs", os.cpu_count()],
        HETEROG_LIBRARY=str(ROOT / "build/dev/lib/libheterog.so"),
        HETEROG_BIN=str(ROOT / "build/dev/bin/heterog"))
    if not ok:
        print("FAILED: damaged files for Python", flush=True)
    return Tally(passed=int(ok), failed=int(not ok))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true",
                        help="leave out the sanitizer builds and the tests marked slow")
    parser.add_argument("--thorough", action="store_true",
                        help="draw all the seeds of tests with random cases, not a quarter of them, and run the "
                             "Python tests marked thorough and the searches under TSan")
    arguments = parser.parse_args()
    quick, thorough = arguments.quick, arguments.thorough
    if thorough:
        os.environ["HETEROG_THOROUGH"] = "1"  # tests/support/rounds.h, python/tests/rounds.py

    steps = [
        ("layers", lambda: one("Layers", ["scripts/check_layers.sh"])),
        ("pages", lambda: one("Pages", ["scripts/check_docs.sh"])),
        ("format", lambda: one("Format", ["scripts/check_format.sh"])),
        ("C++", lambda: cpp_tests("dev")),
        ("Python", lambda: python_tests(quick)),
        ("reference", lambda: one("Reference", [sys.executable, "scripts/reference.py", "--check"])),
        ("wheel", lambda: one("Wheel and pages", [sys.executable, "scripts/check_wheel.py"])),
        ("newest PyTorch", newest_torch),
        ("site", lambda: one("Site", ["scripts/build_site.sh"])),
        ("Damaged files", lambda: damaged_files(1200 if thorough else 300)),
        ("Damaged files for Python", lambda: damaged_python_files(660 if thorough else 165)),
    ]
    if not quick:
        steps += [
            ("C++ under ASan and UBSan", lambda: cpp_tests("asan", ASAN_PROGRAMS)),
            ("C++ under TSan", lambda: cpp_tests("tsan", TSAN_PROGRAMS + ["search_test"] * thorough)),
        ]

    total = Tally()
    lines = []
    for name, step in steps:
        begin = time.monotonic()
        tally = step()
        total.add(tally)
        lines.append(f"{name}: {tally.passed} passed, {tally.failed} failed, "
                     f"{tally.skipped} skipped, {time.monotonic() - begin:.0f} s")
    note("Summary")
    print("\n".join(lines))
    skipped = f", {total.skipped} skipped" if total.skipped else ""
    print(f"\n{total.passed} passed, {total.failed} failed{skipped}")
    return 0 if total.failed == 0 and total.passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
