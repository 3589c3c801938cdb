"""The command `python -m heterog.import_timings`, or `heterog import-timings`: costs and links by what a
script of DistributedDataParallel took."""

import shlex
import sys

from heterog.base.arguments import make_parser
from heterog.base.errors import HeterogError
from heterog.profiles.timed_costs import Imported, import_timings
from heterog.profiles.timed_links import Links


def main(arguments: list[str] | None = None) -> int:
    parser = make_parser(
        prog="heterog import-timings",
        description="Writes the costs of a graph on every type of device, and the bandwidths of links, by what a "
        "script of DistributedDataParallel took (docs/timings.md).",
        epilog="example: heterog import-timings timings.json --graph vgg19.json.gz --cluster cluster.json --out costs",
    )
    parser.add_argument("timings", help="what heterog.time_ddp or auto_shares(…, shares=FILE) wrote, or such a file "
                        "written by hand")  # fmt: skip
    parser.add_argument("--graph", required=True, help="of the model that was timed: a file, or one of the zoo")
    parser.add_argument("--cluster", required=True, help="of the devices that ran, in the order of the ranks")
    parser.add_argument("--out", required=True, help="a folder for TYPE.profile.json and links.profile.json")
    options = parser.parse_args(arguments)
    try:
        found = import_timings(options.timings, options.graph, options.cluster, options.out)
    except HeterogError as error:
        print(f"heterog: error: {error}", file=sys.stderr)
        return error.code
    for line in _lines(found):
        print(line)
    profiles = " ".join(f"--profile {shlex.quote(str(file))}" for file in found.files)
    print(f"written. Next:\n  heterog plan --graph {shlex.quote(options.graph)} --cluster "
          f"{shlex.quote(options.cluster)} --batch {found.batch} {profiles} --out plan.json")  # fmt: skip
    return 0


def _lines(found: Imported) -> list[str]:
    lines = _table(
        ["rank", "type", "samples", "measured", "believed", "ratio"],
        [
            [f"{one.rank}", one.type, f"{one.samples}", _ms(one.measured), _ms(one.believed),
             f"{one.measured / one.believed:.2f}"]
            for one in found.passes
        ],
    )  # fmt: skip
    for kind, ratios in found.ratios.items():
        sizes = ", ".join(f"{ratio:.2f} × at {samples} samples" for samples, ratio in ratios.items())
        lines.append(f"{kind}: every operator takes what was believed {sizes}")
    if found.links is not None:
        lines.append(_of_links(found.links))
    for step in found.steps:
        shares = " ".join(map(str, step.samples))
        without = "" if found.update else ", without the update"
        lines.append(
            f"a step of {shares} samples: {_ms(step.measured)} measured{without}; predicted {_ms(step.before)} "
            f"before, {_ms(step.after)} now"
        )
    return lines


def _of_links(links: Links) -> str:
    all_reduce = f"all-reduce: {_ms(links.measured)} measured, {_ms(links.believed)} believed"
    if links.why:
        return f"{all_reduce}; links stay as they are: {links.why}"
    if not links.bandwidth:
        return f"{all_reduce}; links stay as they are"
    slowest = min(links.times, key=lambda name: links.bandwidth[name])
    others = f" and {len(links.times) - 1} more" if len(links.times) > 1 else ""
    return (
        f"{all_reduce}; {slowest}{others}: {links.bandwidth[slowest] / 1e9:.3g} GB/s, {links.times[slowest]:.2f} × the "
        "cluster file"
    )


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in [head, *rows]]


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.1f} ms"
