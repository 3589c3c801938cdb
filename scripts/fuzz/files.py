"""Feeds damaged files of every kind to the whole program, and counts how it ends.

The program is to be one of the preset `fuzz` (address and undefined-behaviour sanitizers):

    cmake --preset fuzz && cmake --build build/fuzz --target program_server
    .venv/bin/python scripts/fuzz/files.py --cases 20000 --seed 0 --jobs 2

Every run must end by itself within --seconds, with exit code 0 (the damage was harmless), 2 and one
line, or, where the file says what to compute, 3 or 4 and one line; without a word of a sanitizer,
and without taking more than --peak bytes beyond what the program takes to start. Files that break
this are kept in --keep, with the command that shows it. A case is the same for the same seed,
number and commit.
"""

import argparse
import collections
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from damage import damage_graph, damage_lines, damage_tensors, damage_text

ROOT = Path(__file__).resolve().parents[2]
TINY = "models/lenet5-tiny.json.gz"
CLUSTER = "configs/clusters/local-2cpu.json"
SERVES = '"host_model": "CPU", "host_memory_bytes": 8589934592, "serves_parameters": true, '


@dataclass
class Kind:
    """A kind of file: samples of it, how to damage one, and commands that read it.

    In the commands, {file} is the damaged file, {out} a folder that is empty, {folder} where both
    are; "a && b" is b after an a that ended with 0. `place` puts the file elsewhere, by a path below a copy of the folder `beside`.
    """

    name: str
    samples: list[Path]
    damage: object
    commands: list[str]
    place: str | None = None
    beside: Path | None = None


def make_base(program: str, base: Path) -> None:
    """The whole files that are damaged: made by the program itself."""

    def run(arguments: str):
        subprocess.run([program, *shlex.split(arguments)], cwd=ROOT, check=True,
                       stdout=subprocess.DEVNULL, env=os.environ | SANITIZERS)

    problem = f"--graph {TINY} --cluster {CLUSTER}"
    run(f"plan {problem} --batch 8 --planner ev-ar --out {base}/plan.json")
    run(f"plan {problem} --batch 8 --planner random --evaluations 20 --out {base}/plan2.json")
    run(f"plan {problem} --batch 8 --planner ev-ar:state=by-memory --out {base}/plan3.json")
    run(f"plan {problem} --batch 8 --planner ev-ar --compress powersgd:rank=1 --out {base}/plan4.json")
    run(f"profile --graph {TINY} --slices 1,4 --repeat 1 --force --out {base}/profile.json")
    run(f"run {problem} --plan {base}/plan.json --steps 2 --in-threads "
        f"--trace {base}/trace --checkpoint {base}/run.safetensors")
    config = {"graphs": [{"graph": TINY, "batches": [8]}], "clusters": [CLUSTER], "steps": 2,
              "samples": 2, "checkpoint_every": 1, "max_groups": 6, "gat_heads": 2,
              "gat_head_width": 4, "gat_layers": 1, "txl_layers": 1, "txl_heads": 2, "txl_width": 8,
              "txl_inner_width": 8, "head_width": 8}
    (base / "train.json").write_text(json.dumps(config))
    run(f"train --config {base}/train.json --out {base}/training")
    (base / "hosts").write_text("one slots=1\ntwo slots=1\n")
    clusters = base / "clusters"
    clusters.mkdir()
    for name in ("devices.json", "links.json"):
        shutil.copy(ROOT / "configs" / name, clusters)
    shutil.copy(ROOT / CLUSTER, clusters / "local.json")
    shutil.copy(ROOT / "configs/clusters/office-mixed.json", clusters / "office.json")
    served = (ROOT / CLUSTER).read_text().replace('"fabric":', SERVES + '"fabric":')
    (clusters / "served.json").write_text(served)


def kinds(base: Path) -> list[Kind]:
    problem = f"--graph {TINY} --cluster {CLUSTER}"
    graphs = [ROOT / TINY, ROOT / "models/ncf-tiny.json.gz",
              *sorted((ROOT / "tests/data").glob("*.json.gz"))]
    planned = "plan --graph {tiny} --cluster {cluster} --batch 8 --planner ev-ar --out {out}/p.json"
    planned = planned.replace("{tiny}", TINY)
    return [
        Kind("graph", graphs, damage_graph, [
            "plan --graph {file} --cluster " + CLUSTER + " --batch 8 --planner cp-ps --out {out}/p",
            "plan --graph {file} --cluster " + CLUSTER + " --batch 9 --planner ev-ar --out {out}/p "
            "&& run --graph {file} --cluster " + CLUSTER + " --plan {out}/p --steps 1 --in-threads",
            "verify --graph {file} --cluster " + CLUSTER + " --batch 8 --planner ev-ar --steps 1",
            "profile --graph {file} --slices 1,2 --repeat 1 --limit 5 --force --out {out}/p",
        ]),
        Kind("cluster", [base / f"clusters/{name}.json" for name in ("local", "office", "served")],
             damage_text, [planned.replace("{cluster}", "{file}").replace("ev-ar", "ev-ps")],
             "clusters/c.json", base / "clusters"),
        Kind("devices", [base / "clusters/devices.json"], damage_text,
             [planned.replace("{cluster}", "{folder}/clusters/office.json")],
             "clusters/devices.json", base / "clusters"),
        Kind("links", [base / "clusters/links.json"], damage_text,
             [planned.replace("{cluster}", "{folder}/clusters/office.json")],
             "clusters/links.json", base / "clusters"),
        Kind("plan", [base / f"plan{number}.json" for number in ("", 2, 3, 4)], damage_text, [
            f"simulate {problem} --plan {{file}} --check",
            f"explain {problem} --plan {{file}}",
            f"diff {problem} {base}/plan.json {{file}}",
            f"report {problem} --plan {{file}} --out {{out}}/r.html",
            f"run {problem} --plan {{file}} --steps 1 --in-threads",
        ]),
        Kind("profile", [base / "profile.json"], damage_text,
             [f"plan {problem} --batch 8 --planner cp-ar --profile {{file}} --out {{out}}/p"]),
        Kind("policy", [base / "training/policy.ckpt"], damage_tensors,
             [f"plan {problem} --batch 8 --planner policy --policy {{file}} --out {{out}}/p"]),
        Kind("train.ckpt", [base / "training/train.ckpt"], damage_tensors,
             [f"train --config {base}/train.json --out {{folder}}/training --resume"],
             "training/train.ckpt", base / "training"),
        Kind("checkpoint", [base / "run.safetensors"], damage_tensors,
             [f"run {problem} --plan {base}/plan.json --steps 3 --in-threads "
              "--checkpoint {file} --resume"]),
        Kind("trace", sorted((base / "trace").glob("*.json")), damage_text,
             [f"report {problem} --plan {base}/plan.json --measured {{folder}}/trace "
              "--out {out}/r.html"], "trace/rank0.json", base / "trace"),
        Kind("config", [base / "train.json"], damage_text,
             ["train --config {file} --out {out}/t --set steps=1"]),
        Kind("hostfile", [base / "hosts"], damage_lines,
             [f"run {problem} --plan {base}/plan.json --steps 1 --hostfile {{file}} --host one "
              "--timeout 1 --master-addr 127.0.0.1 --master-port {port}"]),
    ]


SANITIZERS = {
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=0:max_allocation_size_mb=1024:"
                    "quarantine_size_mb=16:abort_on_error=0:exitcode=99",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
MARKS = ("AddressSanitizer", "runtime error:", "terminate called", "Assertion", "EXPECT",
         "internal error")


class Server:
    """One program_server, which runs a case at a time."""

    def __init__(self, program: str):
        self.process = subprocess.Popen([program], cwd=ROOT, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True,
                                        env=os.environ | SANITIZERS)

    def run(self, arguments: list[str], folder: Path, seconds: float) -> dict:
        """Runs one command, or several with "&&" between, until one does not end with 0."""
        if "&&" in arguments:
            at = arguments.index("&&")
            answer = self.run(arguments[:at], folder, seconds)
            well = answer["code"] == 0 and not answer["late"] and not answer["signal"]
            if not well:
                return answer
            after = self.run(arguments[at + 1 :], folder, seconds)
            after["seconds"] = max(after["seconds"], answer["seconds"])
            after["peak_bytes"] = max(after["peak_bytes"], answer["peak_bytes"])
            return after
        request = {"arguments": arguments, "stdout": str(folder / "stdout"),
                   "stderr": str(folder / "stderr"), "seconds": seconds,
                   "exec": "--hostfile" in arguments}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        answer["stderr"] = (folder / "stderr").read_text("utf-8", "replace")
        return answer


def verdict(answer: dict, limit: int) -> str | None:
    """What is wrong with how a run ended; None: nothing."""
    lines = [line for line in answer["stderr"].splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("heterog: error: ")]
    if answer["late"]:
        return "did not end in time"
    if answer["signal"]:
        return f"ended by signal {answer['signal']}"
    mark = next((mark for mark in MARKS if any(mark in line for line in lines)), None)
    if mark:
        return f"{mark} on stderr"
    if answer["code"] not in (0, 2, 3, 4):
        return f"exit code {answer['code']}"
    if answer["code"] and len(errors) != 1:
        return f"exit code {answer['code']} with {len(errors)} error lines"
    if "does not train as one device" in answer["stderr"]:
        return "a plan that does not train as one device"
    if answer["code"] == 2 and len(errors[0]) > 1500:
        return "an error line of over 1,500 characters"
    if answer["peak_bytes"] > limit:
        return f"took {answer['peak_bytes'] / 1e6:.0f} MB"
    return None


class Fuzzer:
    def __init__(self, options, base: Path):
        self.options = options
        self.base = base
        self.kinds = [k for k in kinds(base) if not options.kinds or k.name in options.kinds]
        self.next = options.first
        self.lock = threading.Lock()
        self.codes = {kind.name: collections.Counter() for kind in self.kinds}
        self.finds = []
        self.slowest = (0.0, "")
        self.peak = (0, "")

    def check_whole(self) -> None:
        """Whole files must be taken by every command: else damage would not be what is refused."""
        server, folder = Server(self.options.program), self.base / "whole"
        for kind in self.kinds:
            for number, command in enumerate(kind.commands):
                words = self.place(kind, kind.samples[0].read_bytes(), command, folder, 20000)
                answer = server.run(words, folder, self.options.seconds)
                needs_others = kind.name == "hostfile"  # whose ranks never come
                if answer["code"] != (4 if needs_others else 0):
                    sys.exit(f"{kind.name}, command {number}: exit code {answer['code']} for a whole "
                             f"file: {shlex.join(words)}\n{answer['stderr'][:2000]}")

    def case(self, number: int):
        """Kind, damaged bytes and command of a case."""
        rng = random.Random(f"{self.options.seed} {number}")
        kind = self.kinds[number % len(self.kinds)]
        sample = rng.choice(kind.samples)
        whole = sample.read_bytes()
        data = kind.damage(whole, rng)
        while data == whole:
            data = kind.damage(whole, rng)
        return kind, data, rng.choice(kind.commands), 20000 + number % 20000

    @staticmethod
    def place(kind: Kind, data: bytes, command: str, folder: Path, port: int) -> list[str]:
        """Puts a file where its command looks for it; the words of the command."""
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "out").mkdir(parents=True)
        file = folder / (kind.place or "damaged")
        if kind.beside:
            shutil.copytree(kind.beside, file.parent)
        file.write_bytes(data)
        return [word.format(file=file, folder=folder, out=folder / "out", port=port)
                for word in shlex.split(command)]

    def run_case(self, server: Server, number: int, folder: Path, start_bytes: int) -> None:
        kind, data, command, port = self.case(number)
        words = self.place(kind, data, command, folder, port)
        answer = server.run(words, folder, self.options.seconds)
        wrong = verdict(answer, start_bytes + self.options.peak)
        with self.lock:
            self.codes[kind.name][answer["code"]] += 1
            self.slowest = max(self.slowest, (answer["seconds"], f"{kind.name} {number}"))
            self.peak = max(self.peak, (answer["peak_bytes"], f"{kind.name} {number}"))
            if not wrong:
                return
            self.finds.append((number, kind.name, wrong))
            error = next((line for line in answer["stderr"].splitlines() if line.strip()), "")
            print(f"case {number} ({kind.name}): {wrong}: {error[:200]}", flush=True)
            kept = self.options.keep / f"{kind.name}-{number}"
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(folder, kept)
            shown = shlex.join(words).replace(str(folder), str(kept))
            shown = shown.replace("'&&'", f"&& {self.options.program}")
            (kept / "command").write_text(f"{wrong}\n{self.options.program} {shown}\n")

    def work(self, worker: int) -> None:
        server = Server(self.options.program)
        folder = self.base / f"worker{worker}"
        folder.mkdir(exist_ok=True)
        start_bytes = server.run(["planners"], folder, self.options.seconds)["peak_bytes"]
        last = self.options.first + self.options.cases
        while True:
            with self.lock:
                number = self.next
                self.next += 1
            if number >= last:
                break
            self.run_case(server, number, folder, start_bytes)
        server.process.stdin.close()
        server.process.wait()

    def print_table(self, seconds: float) -> None:
        print(f"\n{'kind':12}{'cases':>8}{'code 0':>8}{'2':>8}{'3':>8}{'4':>8}{'other':>8}")
        for name, codes in self.codes.items():
            known = [codes[code] for code in (0, 2, 3, 4)]
            print(f"{name:12}{codes.total():8}" + "".join(f"{n:8}" for n in known)
                  + f"{codes.total() - sum(known):8}")
        print(f"slowest {self.slowest[0]:.1f} s ({self.slowest[1]}), "
              f"peak {self.peak[0] / 1e6:.0f} MB ({self.peak[1]}), {seconds:.0f} s in all")
        total = sum(codes.total() for codes in self.codes.values())
        print(f"\n{total - len(self.finds)} passed, {len(self.finds)} failed")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build/fuzz/bin/program_server"))
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--kinds", nargs="+", help="only these kinds of file")
    parser.add_argument("--seconds", type=float, default=20, help="the longest that a run may take")
    parser.add_argument("--peak", type=int, default=1 << 30,
                        help="bytes that a run may take beyond those of `heterog planners`")
    parser.add_argument("--keep", type=Path, default=ROOT / "out/fuzz", help="folder for finds")
    options = parser.parse_args()
    options.program = os.path.abspath(options.program)
    options.keep.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="heterog_fuzz_") as folder:
        base = Path(folder)
        make_base(options.program, base)
        fuzzer = Fuzzer(options, base)
        fuzzer.check_whole()
        begin = time.monotonic()
        threads = [threading.Thread(target=fuzzer.work, args=(i,)) for i in range(options.jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        fuzzer.print_table(time.monotonic() - begin)
    run = sum(codes.total() for codes in fuzzer.codes.values())
    return 1 if fuzzer.finds or run < options.cases else 0


if __name__ == "__main__":
    sys.exit(main())
