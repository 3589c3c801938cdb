#!/usr/bin/env python3
"""Finds operators of the table that trust their operands: calls PyTorch's CPU kernels with wrong ones.

A graph is data, and any operand may be given to any operator of src/operators/allowed_table.cc. Calls
are captured from PyTorch's own samples, forward and backward, or made up from schemas, and then
damaged: sizes, ranks, types, layouts and values of tensors, numbers, lists. Each runs in a child
process where every tensor ends, or begins, at a page that cannot be touched
(tests/fuzz/guard_allocator.cc). A kernel that reads or writes outside of its tensors, divides an
integer by zero, hands out a view beyond its storage, or does not come back ends the child, and is
reported. Calls with operands that src/runtime/kernels/operand_checks.cc refuses are not made.

    .venv/bin/python scripts/fuzz/operators.py --cases 400 --seed 0
    .venv/bin/python scripts/fuzz/operators.py --only nll_loss_backward --cases 5000
    .venv/bin/python scripts/fuzz/operators.py --only aten.nll_loss_backward.default --case 17

A case is the same for the same seed, overload and number, with the same PyTorch.
"""

import os

os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"

import argparse
import ctypes
import gc
import importlib
import json
import mmap
import random
import resource
import signal
import struct
import subprocess
import sys
import sysconfig
import traceback
import warnings
from pathlib import Path

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from kernel_samples import DTYPES, capture, made_up, numel

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "out/fuzz_kernels"
SECONDS = 10  # of a case
OUTSIDE = 77  # exit code: a result that is a view beyond its storage
DEATHS = 2  # of an overload, after which it is left

# ------------------------------------------------------------------------------------ calls


def overloads() -> dict:
    """"aten.mm.default" → the overload, for all of the table."""
    lines = (ROOT / "src/operators/allowed_table.cc").read_text().split('R"(\n')[1].split(')"')[0]
    found = {}
    for packet, *names in (line.split() for line in lines.splitlines()):
        for name in names:
            found[f"aten.{packet}.{name}"] = getattr(getattr(torch.ops.aten, packet), name)
    return found


# ------------------------------------------------------------------------------------ damage

WIDE = [2**31 - 1, 2**31, 2**40, -(2**40), 2**63 - 1, -(2**63), 3000, -3000]


def resized(x, shape):
    """The values of x, over and over, in another shape."""
    flat = x.reshape(-1)
    if flat.numel() == 0:
        return torch.zeros(shape, dtype=x.dtype)
    return flat.repeat(numel(shape) // flat.numel() + 1)[: numel(shape)].reshape(shape)


def other_tensor(x, leaves, rng: random.Random):
    kind = rng.randrange(12)
    shape = list(x.shape)
    if kind < 4 and shape:
        at = rng.randrange(len(shape))
        s = shape[at]
        shape[at] = rng.choice((0, 1, max(s - 1, 0), s + 1, 2 * s, s // 2, s + 7, 16 * s))
        return resized(x, shape) if numel(shape) < 200000 else x
    if kind == 4:
        change = rng.randrange(4)
        if change == 0 or not shape:
            shape.insert(rng.randint(0, len(shape)), rng.choice((0, 1, 1, 2, 3)))
        elif change == 1:
            shape.pop(rng.randrange(len(shape)))
        elif change == 2:
            shape = [numel(shape)]
        else:
            rng.shuffle(shape)
        return resized(x, shape)
    if kind < 8 and x.numel():
        x = x.clone()
        near = [d for y in leaves if isinstance(y, torch.Tensor) for d in y.shape]
        near += [y for y in leaves if isinstance(y, int)]
        if x.dtype == torch.bool:
            return ~x
        if x.dtype.is_floating_point or x.dtype.is_complex:
            wrong = rng.choice((float("nan"), float("inf"), -float("inf"), 6e4, -6e4, 1e-7, -3.0))
        else:
            wrong = rng.choice((-1, -1, *WIDE, *near, *near, *(-n - 1 for n in near)))
            info = torch.iinfo(x.dtype)
            wrong = max(info.min, min(info.max, wrong))
        if rng.random() < 0.4:
            return torch.full_like(x, wrong)
        for _ in range(rng.choice((1, 1, 3))):
            x.view(-1)[rng.randrange(x.numel())] = wrong
        return x
    if kind == 8:
        return x.to(rng.choice(DTYPES))
    if kind == 9:
        return rng.choice([y for y in leaves if isinstance(y, torch.Tensor)])
    if kind == 10 and x.dim() > 1:
        return x.transpose(0, rng.randrange(1, x.dim()))
    return resized(x, [0 if rng.random() < 0.5 else 1 for _ in shape])


def other_leaf(x, leaves, rng: random.Random):
    if isinstance(x, torch.Tensor):
        return other_tensor(x.contiguous(), leaves, rng)
    if isinstance(x, bool):
        return not x
    if isinstance(x, int):
        return rng.choice((0, 0, -1, 1, 2, 3, x + 1, x - 1, 2 * x, x // 2, -x, 100, *WIDE))
    if isinstance(x, float):
        return rng.choice((0.0, -1.0, 1e-30, 1e30, float("nan"), float("inf"), -x, 2.5, 1e9))
    if isinstance(x, torch.dtype):
        return rng.choice(DTYPES)
    if x is None:
        tensors = [y for y in leaves if isinstance(y, torch.Tensor)]
        return rng.choice([0, 1, 0.5, True, [1], *tensors])
    return x


def other_list(value, rng: random.Random):
    """A list of the arguments longer, shorter, or in another order."""
    value = list(value)
    change = rng.randrange(5)
    if change == 0 and value:
        value.pop(rng.randrange(len(value)))
    elif change == 1 and value:
        value.append(rng.choice(value))
    elif change == 2:
        rng.shuffle(value)
    elif change == 3:
        return value * 2
    elif change == 4:
        return []
    return value


def laid_out(x, rng: random.Random):
    """x in memory of the allocator that is installed now, mostly without gaps."""
    if rng.random() < 0.75 or x.dim() == 0:
        return x.contiguous().clone(memory_format=torch.contiguous_format)
    if rng.random() < 0.5:
        order = list(range(x.dim()))
        rng.shuffle(order)
        back = [order.index(i) for i in range(x.dim())]
        return x.permute(order).clone(memory_format=torch.contiguous_format).permute(back)
    if rng.random() < 0.5 and x.numel() and x.shape[0] > 1:
        return x[:1].clone(memory_format=torch.contiguous_format).expand(x.shape)
    return torch.stack((x, x), -1).clone(memory_format=torch.contiguous_format)[..., 0]


def case_of(name, overload, samples, number, seed):
    """The arguments of a case."""
    rng = random.Random(f"{seed} {name} {number}")
    if samples and rng.random() < 0.9:
        leaves, form = rng.choice(samples)
        changes = 0 if number == 0 else rng.choice((0, 1, 1, 1, 1, 2, 2, 3))
    else:
        leaves, form = made_up(overload._schema, rng)
        changes = rng.choice((0, 1, 2))
    leaves = list(leaves)
    if changes and rng.random() < 0.25:  # one size everywhere where it occurs, or a sum of damages
        sizes = [d for x in leaves if isinstance(x, torch.Tensor) for d in x.shape]
        if sizes:
            size, other = rng.choice(sizes), rng.choice((0, 1, 2, 5, 17))
            for i, x in enumerate(leaves):
                if isinstance(x, torch.Tensor) and rng.random() < 0.7:
                    shape = [other if d == size else d for d in x.shape]
                    leaves[i] = resized(x, shape) if numel(shape) < 200000 else x
    for _ in range(changes if leaves else 0):
        at = rng.randrange(len(leaves))
        leaves[at] = other_leaf(leaves[at], leaves, rng)
    args, kwargs = tree_unflatten(leaves, form)
    args = [
        other_list(x, rng) if changes and isinstance(x, (list, tuple)) and rng.random() < 0.1 else x
        for x in args
    ]
    leaves, form = tree_flatten((tuple(args), kwargs))
    leaves = [laid_out(x, rng) if isinstance(x, torch.Tensor) else x for x in leaves]
    return tree_unflatten(leaves, form)


def described(value) -> str:
    if isinstance(value, torch.Tensor):
        text = f"{str(value.dtype)[6:]}{list(value.shape)}"
        if not value.is_contiguous():
            text += f" strides {list(value.stride())}"
        if not value.dtype.is_floating_point and 0 < value.numel() <= 12:
            text += f" = {value.tolist()}"
        return text
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(described, value)) + "]"
    if isinstance(value, dict):
        return ", ".join(f"{k}={described(v)}" for k, v in value.items())
    return repr(value)


# ------------------------------------------------------------------------------------ children


def built() -> tuple:
    """The guard allocator and the checks of the program, compiled where they have changed."""
    home, made = Path(torch.__file__).parent, []
    OUT.mkdir(parents=True, exist_ok=True)
    for name, sources, libraries in (
        ("guard_allocator", [], ["-lc10"]),
        ("kernel_checks",
         ["src/runtime/kernels/operand_checks.cc", "src/runtime/kernels/named_operands.cc", "src/base/check.cc"],
         ["-ltorch_python", "-ltorch", "-ltorch_cpu", "-lc10"]),
    ):  # fmt: skip
        sources = [ROOT / source for source in (f"tests/fuzz/{name}.cc", *sources)]
        library = OUT / f"{name}.so"
        newest = max(source.stat().st_mtime for source in sources)
        if not library.exists() or library.stat().st_mtime < newest:
            library.unlink(missing_ok=True)
            subprocess.run(
                ["c++", "-O0", "-DFMT_HEADER_ONLY", "-std=c++20", "-shared", "-fPIC", *sources, f"-I{ROOT}/src",
                 f"-I{home}/include", f"-I{home}/include/torch/csrc/api/include",
                 f"-I{sysconfig.get_paths()['include']}", f"-L{home}/lib", *libraries,
                 "-o", library], check=True)  # fmt: skip
        made.append(library)
    sys.path.insert(0, str(OUT))
    return ctypes.CDLL(str(made[0])), importlib.import_module("kernel_checks").call


def holds_in_storage(x) -> bool:
    if x.layout != torch.strided or x.numel() == 0 or x._is_zerotensor():
        return True
    low = high = x.storage_offset()
    for size, stride in zip(x.shape, x.stride(), strict=True):
        low, high = min(low, low + (size - 1) * stride), high + max(0, (size - 1) * stride)
    return low >= 0 and (high + 1) * x.element_size() <= x.untyped_storage().nbytes()


class Runner:
    """Runs cases in children. `counts`: the case that runs, those that ended well, those refused."""

    def __init__(self, seed):
        (self.guard, self.call), self.seed = built(), seed
        self.counts = mmap.mmap(-1, 24)

    def in_child(self, name, overload, samples, numbers):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        used = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**31, used + 2**31))
        said = os.open(OUT / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):  # MKL complains on both
            os.dup2(said, stream)
        self.guard.guard_tensors()
        schema = overload._schema
        with torch.inference_mode():
            for number in numbers:
                self.guard.guard_end(number % 4 != 3)
                try:
                    args, kwargs = case_of(name, overload, samples, number, self.seed)
                except RuntimeError:  # too large
                    continue
                torch.manual_seed(number)
                done, refused = struct.unpack_from("qq", self.counts, 8)
                struct.pack_into("q", self.counts, 0, number)
                signal.setitimer(signal.ITIMER_REAL, SECONDS)
                try:
                    results = self.call(schema.name, schema.overload_name, name, *args, **kwargs)
                    for x in tree_flatten(results)[0]:
                        if isinstance(x, torch.Tensor):
                            if not holds_in_storage(x):
                                os._exit(OUTSIDE)
                            x.clone()
                    done += 1
                    del results, x
                except (Exception, SystemError):
                    refused += 1
                del args, kwargs
                signal.setitimer(signal.ITIMER_REAL, 0)
                struct.pack_into("qq", self.counts, 8, done, refused)

    def death(self, name, overload, samples, numbers) -> str:
        """How a child that runs the cases ends; empty if well."""
        child = os.fork()
        if child == 0:
            try:
                self.in_child(name, overload, samples, numbers)
            except BaseException:  # of this script
                traceback.print_exc(file=open(OUT / "error.txt", "w"))
                os._exit(78)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code >= 0:
            return {0: "", OUTSIDE: "view outside"}.get(code, f"code {code}")
        return {signal.SIGILL: "canary", signal.SIGALRM: "hangs"}.get(-code, signal.Signals(-code).name)

    def campaign(self, name, overload, samples, cases) -> dict:
        struct.pack_into("qqq", self.counts, 0, 0, 0, 0)
        deaths, number = [], 0
        while number < cases and len(deaths) < DEATHS:
            how = self.death(name, overload, samples, range(number, cases))
            if not how:
                number = cases
                break
            number = struct.unpack_from("q", self.counts, 0)[0]
            done = bytes(self.counts[8:24])
            if how == "SIGABRT" and not self.death(name, overload, samples, [number]):
                how += ", not alone"  # malloc found what an earlier case left
            self.counts[8:24] = done
            args, kwargs = case_of(name, overload, samples, number, self.seed)
            deaths.append([how, number, f"{described(args)} {described(kwargs)}"])
            number += 1
        done, refused = struct.unpack_from("qq", self.counts, 8)
        return {"samples": len(samples), "cases": number, "done": done, "refused": refused,
                "deaths": deaths}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=400, help="of each overload")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="overloads whose name contains this")
    parser.add_argument("--case", type=int, help="show and run this one")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # no huge pages, which a child would copy whole
    torch.set_num_threads(1)
    table = overloads()
    OUT.mkdir(parents=True, exist_ok=True)
    calls = capture(table)
    gc.freeze()  # children share the memory
    gc.disable()
    runner = Runner(options.seed)
    report = {}
    for name in (name for name in table if options.only in name):
        samples = calls.get(name, [])
        if options.case is not None:
            args, kwargs = case_of(name, table[name], samples, options.case, options.seed)
            print(name, described(args), described(kwargs))
            print(runner.death(name, table[name], samples, [options.case]) or "ends well")
            continue
        report[name] = runner.campaign(name, table[name], samples, options.cases)
        if report[name]["deaths"]:
            print(name, *(f"\n    {how} {n}: {text}" for how, n, text in report[name]["deaths"]),
                  flush=True)  # fmt: skip
    if options.case is not None:
        return 0
    (OUT / "report.json").write_text(json.dumps(report, indent=1))
    dead = [name for name, result in report.items() if result["deaths"]]
    bare = [name for name, result in report.items() if not result["samples"]]
    never = [name for name, result in report.items() if not result["done"]]
    print("no sample:", *bare)
    print("never accepted:", *never)
    print(f"{len(report)} overloads, {sum(r['cases'] for r in report.values())} cases, "
          f"{sum(r['done'] for r in report.values())} of them accepted; "
          f"{len(bare)} overloads without a sample, {len(never)} never accepted, {len(dead)} died")  # fmt: skip
    return 1 if dead else 0


if __name__ == "__main__":
    sys.exit(main())
