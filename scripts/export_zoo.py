#!/usr/bin/env python3
"""Exports the model zoo again: models/NAME.json.gz for every model, or for those named.

    .venv/bin/python scripts/export_zoo.py [NAME ...] [--out models] [--tiny-only] [--jobs 1]

The same versions of the pinned packages give the same bytes.
"""

import argparse
import multiprocessing
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))

LIMIT_BYTES = 20_000_000  # of all of models/
HEADER = (f"{'name':26} {'ops':>7} {'non-alias':>9} {'parameters':>12} {'kB':>7} {'seconds':>8}")


@dataclass(frozen=True)
class Exported:
    name: str
    ops: int
    computing_ops: int  # those that are not views
    parameters: int
    file_bytes: int
    seconds: float

    def row(self) -> str:
        return (f"{self.name:26} {self.ops:7,} {self.computing_ops:9,} {self.parameters:12,} "
                f"{self.file_bytes / 1000:7.1f} {self.seconds:8.1f}")  # fmt: skip


def export(name: str, out: Path) -> Exported:
    """Exports one model and reads back what was written."""
    import torch

    import heterog
    from heterog import zoo
    from heterog.export.graph.writer import read_graph
    from heterog.zoo.memory import affine, is_alias

    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", module="torch|transformers|timm")
    spec = zoo.get(name)
    begin = time.perf_counter()
    path = out / f"{name}.json.gz"
    heterog.export_training_step(
        spec.factory, spec.make_inputs, spec.loss_fn, spec.optimizer, name).save(path)
    seconds = time.perf_counter() - begin
    graph = read_graph(path)
    parameters = 0
    for tensor in graph["tensors"]:
        if tensor["role"] == "parameter":
            count = 1
            for dimension in tensor["shape"]:
                count *= affine(dimension, 1)
            parameters += count
    computing = sum(not is_alias(op["op"]) for op in graph["ops"])
    return Exported(name, len(graph["ops"]), computing, parameters, path.stat().st_size, seconds)


def main() -> int:
    from heterog import zoo

    parser = argparse.ArgumentParser(description="exports the model zoo to models/")
    parser.add_argument("names", nargs="*", metavar="NAME", help="models; all if none is given")
    parser.add_argument("--out", type=Path, default=Path("models"))
    parser.add_argument("--tiny-only", action="store_true", help="only the -tiny siblings")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    options = parser.parse_args()
    for name in options.names:
        if name not in zoo.SPECS:
            parser.error(f"no model '{name}'; there are {', '.join(zoo.names())}")
    names = [n for n in options.names or zoo.names() if zoo.get(n).tiny or not options.tiny_only]
    options.out.mkdir(parents=True, exist_ok=True)

    print(HEADER)
    if options.jobs == 1:
        for name in names:
            print(export(name, options.out).row(), flush=True)
    else:
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(options.jobs, mp_context=spawn) as pool:
            for exported in pool.map(export, names, [options.out] * len(names)):
                print(exported.row(), flush=True)
    total = sum(path.stat().st_size for path in options.out.glob("**/*") if path.is_file())
    print(f"{options.out} holds {total / 1e6:.1f} MB of at most {LIMIT_BYTES / 1e6:.0f} MB")
    return 0 if total <= LIMIT_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())
