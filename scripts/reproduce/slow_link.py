"""Whether heterog.auto_shares is right about a rank that it would leave out (docs/auto_shares.md).

    sudo .venv/bin/python scripts/reproduce/slow_link.py [--megabits 60 100 400 1000 10000]

Three ranks, capped to the same part of a core each (auto_shares.py), stand in network namespaces
that a bridge joins. The last one's wire is shaped by `tc tbf`. Steps are measured with all three at
the shares that were found, and again with the first two alone at theirs; the ratio is what leaving
it out gains, beside what auto_shares predicted, if it advised that. Needs root and iproute2.
"""

import argparse
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from auto_shares import PERIOD, processor, run  # noqa: E402

SPACES = ("shares0", "shares1", "shares2")
BRIDGE = "hgbridge"
PART = 0.32  # of a core


def sh(*words, check=True) -> None:
    subprocess.run([str(word) for word in words], check=check, capture_output=not check)


def make_network(megabits: float) -> None:
    remove_network()
    sh("ip", "link", "add", BRIDGE, "type", "bridge")
    sh("ip", "link", "set", BRIDGE, "up")
    for number, space in enumerate(SPACES):
        outer = f"hgs{number}"
        sh("ip", "netns", "add", space)
        sh("ip", "link", "add", outer, "type", "veth", "peer", "name", "wire", "netns", space)
        sh("ip", "link", "set", outer, "master", BRIDGE, "up")
        sh("ip", "-n", space, "addr", "add", f"10.204.0.{number + 1}/24", "dev", "wire")
        sh("ip", "-n", space, "link", "set", "lo", "up")
        sh("ip", "-n", space, "link", "set", "wire", "up")
    shape = ("root", "tbf", "rate", f"{megabits}mbit", "burst", "64kb", "latency", "200ms")
    sh("tc", "-n", SPACES[-1], "qdisc", "add", "dev", "wire", *shape)
    sh("tc", "qdisc", "add", "dev", f"hgs{len(SPACES) - 1}", *shape)


def remove_network() -> None:
    for space in SPACES:
        sh("ip", "netns", "del", space, check=False)
    sh("ip", "link", "del", BRIDGE, check=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--megabits", type=float, nargs="+", default=[60, 100, 400, 1000, 10000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", default="out/slow_link")
    options = parser.parse_args()
    folder = Path(options.out).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    prefixes = [
        ["ip", "netns", "exec", space, "env", "GLOO_SOCKET_IFNAME=wire", "TP_SOCKET_IFNAME=wire"]
        for space in SPACES
    ]
    print(f"transformer, gradients of 5.6 MB, on {processor()}; caps of {PERIOD / 1000:g} ms")
    print("| wire of the third rank | step with it | without | gain measured | advice |")
    print("|---|---|---|---|---|")
    try:
        for number, megabits in enumerate(options.megabits):
            make_network(megabits)
            steps = []
            for world in (3, 2):
                meet = f"tcp://10.204.0.1:{29700 + 10 * number + world}"
                place = ([PART] * world, False, options.rounds, folder, meet, prefixes[:world])
                found = run("transformer", *place)
                steps.append(found["uneven"])
                if world == 3:
                    advice = [
                        f"leave rank {', '.join(map(str, ranks))} out, {gain:.2f} ×"
                        for ranks, gain in found["leave_out"]
                    ]
            print(
                f"| {megabits:g} Mbit/s | {1e3 * steps[0]:.0f} ms | {1e3 * steps[1]:.0f} ms "
                f"| {steps[0] / steps[1]:.2f} | {'; '.join(advice) or 'none'} |",
                flush=True,
            )
    finally:
        remove_network()


if __name__ == "__main__":
    main()
