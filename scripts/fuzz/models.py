"""Trains thousands of small random models by runners and in plain PyTorch, and counts who agrees.

    scripts/fuzz/models.py --models 5000 --seed 0       a closing count, and every find with its seed
    scripts/fuzz/models.py --show 17                    the source of a model
    scripts/fuzz/models.py --shrink 17                  its fewest blocks that still differ

Models are those of python/tests/model_generator.py: one seed is one model, on any machine. They are
trained in worker processes, which are started anew after a crash or a hang.
"""

import argparse
import collections
import gc
import json
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "python" / "tests")]
SECONDS = 600  # after which a model counts as hanging: far above what a busy machine takes


def worker(cache: Path, strategies: int) -> None:
    """Reads seeds (with blocks to leave out), writes outcomes, a line each."""
    import torch
    from model_check import check
    from model_generator import generate

    torch.set_num_threads(1)
    gc.disable()  # a fifth of the time otherwise
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a model prints is no answer
    for line in sys.stdin:
        seed, *without = json.loads(line)
        outcome = check(generate(seed, frozenset(without)).source, seed, cache, strategies)
        answers.write(json.dumps([outcome.kind, outcome.detail, outcome.plan]) + "\n")
        answers.flush()
        for left in cache.glob("graph-*"):
            left.unlink()
        if seed % 50 == 0:
            gc.collect()


class Worker:
    """A process that trains models one after the other; a crash or a hang is an outcome."""

    def __init__(self, cache: Path, strategies: int):
        self._command = [sys.executable, __file__, "--worker", str(cache)]
        self._command += ["--strategies", str(strategies)]
        self._process = None

    def outcome(self, seed: int, without=()) -> list:
        if self._process is None:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
        process = self._process
        late = threading.Timer(SECONDS, process.kill)
        late.start()
        try:
            process.stdin.write(json.dumps([seed, *without]) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        hung = not late.is_alive()
        late.cancel()
        if line:
            return json.loads(line)
        self.close()
        return ["failed", "hangs" if hung else f"crash: exit code {process.returncode}", ""]

    def close(self) -> None:
        if self._process is not None:
            self._process.stdin.close()
            self._process.kill() if self._process.poll() is None else None
            self._process.wait()
            self._process = None


def reason(detail: str) -> str:
    """A refusal without the names and numbers of its model."""
    last = detail.strip().splitlines()[-1] if detail.startswith("Traceback") else detail
    return re.sub(r"'[^']*'|\"[^\"]*\"|/\S+|[\w.]*\d[\w.]*", "…", last)[:100]


def fuzz(first: int, count: int, jobs: int, strategies: int, verbose: bool) -> collections.Counter:
    """Outcomes by kind; prints every find."""
    seeds = queue.SimpleQueue()
    for seed in range(first, first + count):
        seeds.put(seed)
    kinds, refusals, lock = collections.Counter(), collections.Counter(), threading.Lock()
    begin = time.monotonic()

    def work(cache: Path) -> None:
        own = Worker(cache, strategies)
        while True:
            try:
                seed = seeds.get_nowait()
            except queue.Empty:
                break
            kind, detail, plan = own.outcome(seed)
            with lock:
                kinds[kind] += 1
                if kind == "refused":
                    refusals[reason(detail)] += 1
                if kind in ("different", "failed") or verbose:
                    print(f"seed {seed}: {kind}: {detail.strip()[-600:]}  {plan[:200]}", flush=True)
                done = sum(kinds.values())
                if done % 500 == 0:
                    print(f"… {done} models, {time.monotonic() - begin:.0f} s: {dict(kinds)}", flush=True)
        own.close()

    with tempfile.TemporaryDirectory() as folder:
        threads = []
        for job in range(jobs):
            cache = Path(folder) / str(job)
            cache.mkdir()
            threads.append(threading.Thread(target=work, args=(cache,)))
            threads[-1].start()
        for thread in threads:
            thread.join()
    for text, times in refusals.most_common():
        print(f"refused {times:5}  {text}")
    seconds = time.monotonic() - begin
    print(
        f"{count} models from seed {first} under {strategies} strategies each, {seconds:.0f} s: "
        + ", ".join(f"{kinds[k]} {k}" for k in ("equal", "refused", "different", "failed"))
        + f"; left out: {kinds['unstable']} unstable in PyTorch alone, {kinds['invalid']} invalid"
    )
    return kinds


def shrink(seed: int, strategies: int) -> None:
    """Leaves blocks out as long as the outcome's kind stays, and prints what is left."""
    from model_generator import generate

    with tempfile.TemporaryDirectory() as folder:
        own = Worker(Path(folder), strategies)
        kind, detail, plan = own.outcome(seed)
        without: set[int] = set()
        for place in range(len(generate(seed).blocks)):
            found = own.outcome(seed, without | {place})
            if found[0] == kind and reason(found[1])[:30] == reason(detail)[:30]:
                without.add(place)
                detail, plan = found[1:]
        own.close()
    print(generate(seed, frozenset(without)).source)
    print(f"# {kind}: {detail}\n# {plan}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=int, default=200, metavar="N")
    parser.add_argument("--seed", type=int, default=0, help="of the first model")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    parser.add_argument("--strategies", type=int, default=2, help="plans a model is trained under")
    parser.add_argument("--verbose", action="store_true", help="print every outcome")
    parser.add_argument("--show", type=int, metavar="SEED")
    parser.add_argument("--shrink", type=int, metavar="SEED")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.worker, options.strategies)
    elif options.show is not None:
        from model_generator import generate

        print(generate(options.show).source)
    elif options.shrink is not None:
        shrink(options.shrink, options.strategies)
    else:
        kinds = fuzz(
            options.seed, options.models, options.jobs, options.strategies, options.verbose
        )
        return 1 if kinds["different"] or kinds["failed"] else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
