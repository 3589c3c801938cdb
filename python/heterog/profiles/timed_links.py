"""The bandwidth of the slowest links of an all-reduce, by what it took."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path

from heterog.profiles.believed import AllReduce

_TIED = 0.999  # of what the slowest link is held: so are others that are as slow
_ENOUGH = 1e-6  # off what was measured
_TRIALS = 30
_LATENCIES = 2  # an all-reduce of less than so many times what is no link's says nothing of bandwidths
_ANY = 1e5  # times the bandwidth: what is left is no link's


@dataclass
class Links:
    """Without any `bandwidth`, links stay as they are; `why`, if not for being right."""

    measured: float  # seconds of an all-reduce
    believed: float
    bandwidth: dict[str, float] = field(default_factory=dict)  # bytes a second, by link
    times: dict[str, float] = field(default_factory=dict)  # the same over that of the cluster file
    after: float = 0.0  # seconds of an all-reduce
    why: str = ""


def fit_links(measured: float, reduce: AllReduce, folder: Path) -> Links:
    """The slowest links are scaled until the all-reduce takes as long as measured; the others are no
    slower than these."""
    believed = reduce.taken()
    links = Links(measured, believed.seconds, after=believed.seconds)
    slowest = max(believed.held.values(), default=0.0)

    def tried(factor: float) -> Links:
        """With `factor` times the bandwidth of the slowest."""
        found = Links(measured, believed.seconds)
        for name, held in believed.held.items():
            as_slow = held >= _TIED * slowest
            if factor == 1 or not as_slow and held <= slowest / factor:
                continue
            found.times[name] = factor if as_slow else held * factor / slowest
            found.bandwidth[name] = believed.bandwidth[name] * found.times[name]
        file = folder / "tried.profile.json"  # links.json beside a cluster file would be a data base
        file.write_text(links_text(found, "all-reduce"), encoding="utf-8")
        found.after = reduce.taken([file]).seconds
        return found

    if measured == 0:
        links.why = "no all-reduce was measured"
        return links
    rest = tried(_ANY).after
    if min(measured, believed.seconds) <= _LATENCIES * rest:
        links.why = (
            f"latencies and caps of the cluster file, which stay, are {1e3 * rest:.3g} ms of it: it says nothing of "
            "bandwidths"
        )
        return links
    factor = 1.0
    for _ in range(_TRIALS):
        links = tried(factor)
        if abs(links.after / measured - 1) < _ENOUGH:
            break
        factor *= (links.after - rest) / (measured - rest)
    return links


def links_text(links: Links, cluster: str) -> str:
    """docs/formats.md: `heterog-links-measured`."""
    each = [{"name": name, "bandwidth_bytes_per_second": bandwidth, "times_the_cluster_file": links.times[name]}
            for name, bandwidth in links.bandwidth.items()]  # fmt: skip
    before, after = (abs(math.log(links.measured / one)) if one > 0 else 0.0 for one in (links.believed, links.after))
    fields = {"format": "heterog-links-measured", "version": 1, "cluster": cluster, "flows": 1,
              "error_before": before, "error_after": after, "links": each}  # fmt: skip
    return json.dumps(fields, indent=1) + "\n"
