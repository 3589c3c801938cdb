#!/usr/bin/env python3
"""Which public architectures can be exported, and which of those train under an unequal plan as on
one device: exports each of torchvision, timm and transformers that the tables beside it list,
plans it for two devices of unequal speed, and verifies the plan.

    .venv/bin/python scripts/coverage/run.py --quick              what takes seconds each
    .venv/bin/python scripts/coverage/run.py --only timm/resnet10t transformers/gpt2
    .venv/bin/python scripts/coverage/run.py --kind causal
    .venv/bin/python scripts/coverage/run.py --table              the table of what has been run

Every result is appended to the file at once; what it holds already is not run again.
"""

import argparse
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import records
import table
from measure import Settings, measure, warm_up

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    options = _parse()
    if options.table:
        print(table.markdown(list(records.read(options.out).values())), end="")
        return 0
    chosen = _chosen(options)
    if options.list:
        for entry in chosen:
            print(f"{entry.name}  {entry.kind}{'  heavy' if entry.heavy else ''}")
        return 0
    if not os.access(options.bin, os.X_OK):
        print(f"coverage: {options.bin} is no program; build it, or name it by --bin", file=sys.stderr)
        return 2
    done = {} if options.again else records.read(options.out)
    left = [entry for entry in chosen if entry.name not in done]
    settings = Settings(options.bin, options.seconds, options.batch, options.planner,
                        options.steps, options.memory << 30)
    libraries = sorted({entry.library for entry in left})
    context, lock, count = warm_up(libraries), threading.Lock(), 0

    def work(entry) -> None:
        nonlocal count
        record = measure(context, entry.name, entry.kind, settings)
        with lock:
            records.append(options.out, record)
            count += 1
            print(f"{count}/{len(left)} {_summary(record)}", flush=True)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(work, left))
    return 0


def _summary(record: dict) -> str:
    name, seconds = record["name"], record["export_seconds"]
    if not record["exported"]:
        return f"{name}: not exported, {seconds} s: {record['refusal']}"
    seconds = f"{seconds} + {record['verify_seconds']} s"
    if record["verified"]:
        return f"{name}: verified, {record['operators']} operators, {seconds}"
    return f"{name}: exported, {seconds}; {record['stage']}: {record['reason']}"


def _chosen(options) -> list:
    from tables import LIBRARIES, entries_of, library_of

    try:
        entries = entries_of(sorted({library_of(n) for n in options.only}) or LIBRARIES)
        chosen = [entries[name] for name in options.only] or list(entries.values())
    except KeyError as unknown:
        sys.exit(f"coverage: no architecture {unknown}; --list prints their names")
    return [
        entry
        for entry in chosen
        if (not options.kind or entry.kind in options.kind) and not (options.quick and entry.heavy)
    ]


def _parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these alone")
    parser.add_argument("--kind", nargs="+", default=[], help="causal, classification, …: see --list")
    parser.add_argument("--quick", action="store_true", help="without the heavy ones")
    parser.add_argument("--again", action="store_true", help="also what the file holds already")
    parser.add_argument("--list", action="store_true", help="print names, run nothing")
    parser.add_argument("--table", action="store_true", help="print the file as Markdown, run nothing")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "coverage.jsonl", metavar="F")
    parser.add_argument("--jobs", type=int, default=1, help="architectures at a time")
    parser.add_argument("--seconds", type=int, default=Settings.seconds,
                        help="of the processor: limit of each export, plan and verify")
    parser.add_argument("--batch", type=int, default=Settings.batch)
    parser.add_argument("--memory", type=int, default=Settings.memory >> 30, metavar="GIB",
                        help="limit of each process")
    parser.add_argument("--steps", type=int, default=Settings.steps)
    parser.add_argument("--planner", default=Settings.planner)
    default = os.environ.get("HETEROG_BIN", str(ROOT / "build" / "dev" / "bin" / "heterog"))
    parser.add_argument("--bin", default=default, help="the program heterog")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
