"""The runtime beside PyTorch: one device against eager, two processes against DDP with Gloo.

    PYTHONPATH=python .venv/bin/python scripts/measure/runtime.py [--rounds 30] [--out F]

Steps of the two take turns in one process, so that what else the machine does hits both; printed
are medians of the steps, and the median of the ratios of neighbours with its 95 % interval. Peak
memory is the median of what a few steps add to processes that run one of the two alone, and the
range, since where an allocator puts things is partly chance.
"""

import argparse
import contextlib
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import torch

import heterog
import small_models

PROCESSES = 5  # that each peak is the median of
MODELS = {"small_bert": small_models.bert, "small_resnet": small_models.convolution}


class Eager:
    """Plain PyTorch, in a process group with DistributedDataParallel."""

    def __init__(self, spec: dict, ranks: int, rank: int):
        torch.manual_seed(0)
        self.model = spec["model"]
        self.trained = self.model
        if ranks > 1:
            self.trained = torch.nn.parallel.DistributedDataParallel(self.model)
        self.optimizer = spec["optimizer"](self.model.parameters())
        self.loss_fn = spec["loss_fn"]
        self.ranks, self.rank = ranks, rank

    def step(self, batch: tuple) -> float:
        own = [t.chunk(self.ranks)[self.rank] for t in batch]
        begin = time.perf_counter()
        self.optimizer.zero_grad()
        loss = self.loss_fn(self.trained, *own)
        loss.backward()
        self.optimizer.step()
        loss.item()
        return time.perf_counter() - begin


class Ours:
    def __init__(self, spec: dict, ranks: int, batch: int, threads: int, cache: str):
        torch.manual_seed(0)
        config = {
            "batch": batch, "planner": "ev-ar" if ranks > 1 else "single", "threads": threads,
            "cache": cache, "any_device": True, "tune_process": True,
        }  # fmt: skip
        self.runner = heterog.get_runner(
            spec["model"], spec["make_inputs"], spec["loss_fn"], spec["optimizer"],
            f"cpu:{ranks}", config,
        )  # fmt: skip

    def step(self, batch: tuple) -> float:
        begin = time.perf_counter()
        self.runner.step(batch)
        return time.perf_counter() - begin


def interval(values: list) -> tuple[float, float]:
    """95 % of the median, by order statistics."""
    values = sorted(values)
    n = len(values)
    half = 0.98 * n**0.5
    low, high = int(max(0, n / 2 - half)), int(min(n - 1, n / 2 + half))
    return values[low], values[high]


def take_turns(name: str, ranks: int, options) -> dict:
    rank = int(os.environ.get("RANK", 0)) if ranks > 1 else 0
    torch.set_num_threads(options.threads)
    if ranks > 1:
        # The runner meets at MASTER_PORT itself.
        port = int(os.environ["MASTER_PORT"]) + 1
        torch.distributed.init_process_group(
            "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks
        )
    with contextlib.closing(
        Ours(MODELS[name](), ranks, options.batch, options.threads, options.cache).runner
    ) as runner:
        ours = Ours.__new__(Ours)
        ours.runner = runner
        spec = MODELS[name]()
        eager = Eager(spec, ranks, rank)
        pairs = []
        for number in range(options.rounds + 3):
            torch.manual_seed(number)
            batch = spec["make_inputs"](options.batch)
            first, second = (eager, ours) if number % 2 else (ours, eager)
            a = first.step(batch)
            b = second.step(batch)
            pairs.append((a, b) if first is eager else (b, a))
    pairs = pairs[3:]  # to warm up
    ratios = [e / o for e, o in pairs]
    low, high = interval(ratios)
    if ranks > 1:
        torch.distributed.destroy_process_group()
    return {
        "model": name,
        "ranks": ranks,
        "pytorch_seconds": statistics.median(e for e, _ in pairs),
        "heterog_seconds": statistics.median(o for _, o in pairs),
        "speed": statistics.median(ratios),
        "speed_low": low,
        "speed_high": high,
    }


def memory(name: str, which: str, options) -> int:
    """Peak resident bytes of this process over a few steps."""
    torch.set_num_threads(options.threads)
    spec = MODELS[name]()
    if which == "heterog":
        trained = Ours(spec, 1, options.batch, options.threads, options.cache)
    else:
        trained = Eager(spec, 1, 0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    batch = spec["make_inputs"](options.batch)
    for _ in range(5):
        trained.step(batch)
    if which == "heterog":
        trained.runner.close()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024


def child(arguments: list, options, ranks: int = 1) -> str:
    """What the first of `ranks` processes of this script prints last."""
    port = 20000 + os.getpid() % 10000
    running = []
    for rank in range(ranks):
        environment = dict(os.environ)
        if ranks > 1:
            environment |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks),
                            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}  # fmt: skip
        running.append(
            subprocess.Popen(
                [sys.executable, __file__, *arguments, "--batch", str(options.batch), "--rounds",
                 str(options.rounds), "--threads", str(options.threads), "--cache", options.cache],
                env=environment, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
        )
    printed = [process.communicate()[0] for process in running]
    if any(process.returncode for process in running):
        sys.exit(f"runtime.py: {' '.join(arguments)} failed")
    return printed[0].strip().split("\n")[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", help="JSON of the table")
    parser.add_argument("--cache", help=argparse.SUPPRESS)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        name, part = options.child
        if part.isdigit():
            print(json.dumps(take_turns(name, int(part), options)))
        else:
            print(memory(name, part, options))
        return
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        options.cache = cache
        print(f"{platform.machine()}, {os.cpu_count()} cores, {options.threads} thread(s), batch "
              f"{options.batch}, torch {torch.__version__}")
        for name in MODELS:
            for ranks in (1, 2):
                row = json.loads(child(["--child", name, str(ranks)], options, ranks))
                rows.append(row)
                print(f"{name:14} {ranks} process(es): PyTorch {row['pytorch_seconds'] * 1e3:7.1f} "
                      f"ms, heterog {row['heterog_seconds'] * 1e3:7.1f} ms, speed "
                      f"{row['speed']:.3f} [{row['speed_low']:.3f}, {row['speed_high']:.3f}]",
                      flush=True)
            text = []
            for which, title in (("pytorch", "PyTorch"), ("heterog", "heterog")):
                peaks = [int(child(["--child", name, which], options)) for _ in range(PROCESSES)]
                rows[-2][f"{which}_peak_bytes"] = statistics.median(peaks)
                text.append(f"{title} {statistics.median(peaks) / 1e6:.0f} MB "
                            f"[{min(peaks) / 1e6:.0f}, {max(peaks) / 1e6:.0f}]")
            print(f"{name:14} peak of the steps: {', '.join(text)}", flush=True)
    if options.out:
        with open(options.out, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
