"""Changes models and optimizers at random in the middle of their training by a runner, and counts who
goes on as plain PyTorch does, and who is refused.

    scripts/fuzz/changes.py --cases 500 --seed 0      a closing count, and every difference with its seed

Cases are those of python/tests/change_generator.py; one seed is one case, on any machine.
"""

import argparse
import collections
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "python" / "tests")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    parser.add_argument("--verbose", action="store_true", help="a line for every case")
    options = parser.parse_args()
    import torch
    from change_generator import outcome

    torch.set_num_threads(1)
    counts: collections.Counter = collections.Counter()
    with tempfile.TemporaryDirectory() as cache:
        for seed in range(options.seed, options.seed + options.cases):
            found = outcome(seed, cache)
            counts[found.kind] += 1
            if options.verbose or found.kind == "DIFFERENT":
                print(f"{seed}: {found.kind}: {found.detail}", flush=True)
    print(", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())))
    return 1 if counts["DIFFERENT"] else 0


if __name__ == "__main__":
    sys.exit(main())
