"""What micro-batches of each rank's own number gain over as many on each (docs/auto_shares.md).

    sudo .venv/bin/python scripts/reproduce/micro_batches.py [--rounds 15] [--repeat 3]

As scripts/reproduce/auto_shares.py, whose caps and Transformer these are: one text a rank, eight of
which a rank of the even script accumulates for an update. After auto_shares, accumulated batches are
timed at even numbers of micro-batches and at those that were found, in turn, round after round, and
both gradients are compared with those of one process on the whole. Needs root, for control groups.
"""

import argparse
import contextlib
import copy
import json
import statistics
import time
from pathlib import Path

import auto_shares
from cap import PERIOD

PARTS = 8
SETUPS = {
    "2 ranks, one at half speed": [0.6, 0.3],
    "3 ranks, one at half speed": [0.4, 0.4, 0.2],
}


def rank_main(options) -> None:
    import torch
    import torch.distributed as dist
    from torch.nn import functional as F
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler

    import heterog
    from heterog.uneven.deals import Deal

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=options.meet, rank=options.rank, world_size=options.world
    )
    model, data = auto_shares.build("transformer")
    ddp = DistributedDataParallel(model)

    def loss(batch):
        return F.cross_entropy(ddp(batch[0]), batch[1])

    loader = DataLoader(data, batch_size=1, sampler=DistributedSampler(data))
    loader = heterog.auto_shares(ddp, loader, loss, accumulate=PARTS, rebalance=None)
    found = loader.found
    micro = tuple(time.micro for time in found.times)
    deals = [Deal(tuple(found.even), (found.even_micro,) * options.world)]
    deals.append(Deal(tuple(found.samples_per_rank), micro))
    total = PARTS * options.world

    def step(deal) -> None:
        """All of the accumulated batch, the first samples of the data."""
        ddp.zero_grad()
        begin = sum(deal.shares[: options.rank])
        sizes = deal.of(options.rank, 1)
        weights = loader.weights.weights(sizes, total, PARTS)
        for place, size in enumerate(sizes):
            rows = range(begin, begin + size)
            batch = [torch.stack(column) for column in zip(*(data[row] for row in rows), strict=True)]
            begin += size
            loader.weights.current = weights[place]
            last = place == len(sizes) - 1
            with contextlib.nullcontext() if last else ddp.no_sync():
                (loss(batch) / PARTS).backward()

    seconds = torch.zeros(options.rounds, 2, dtype=torch.float64)
    for number in range(options.rounds):
        for kind, deal in enumerate(deals):
            dist.barrier()
            start = time.perf_counter()
            step(deal)
            seconds[number, kind] = time.perf_counter() - start
    dist.all_reduce(seconds, dist.ReduceOp.MAX)
    if options.rank == 0:
        mine = torch.cat([p.grad.flatten() for p in ddp.parameters()])
        alone = copy.deepcopy(model)  # its gradients have no weights
        alone.zero_grad()
        whole = [torch.stack(column) for column in zip(*(data[n] for n in range(total)), strict=True)]
        F.cross_entropy(alone(whole[0]), whole[1]).backward()
        expected = torch.cat([p.grad.flatten() for p in alone.parameters()])
        even, uneven = (statistics.median(column) for column in seconds.T.tolist())
        result = {
            "shares": found.samples_per_rank, "micro": micro, "even": even, "uneven": uneven,
            "measured": even / uneven, "predicted": found.predicted_speed_up,
            "off": ((mine - expected).norm() / expected.norm()).item(),
            "leave_out": [list(ranks) for ranks in found.leave_out],
        }  # fmt: skip
        Path(options.out).write_text(json.dumps(result), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--repeat", type=int, default=3, help="runs of each row")
    parser.add_argument("--out", default="out/micro_batches")
    for name in ("--rank", "--world"):
        parser.add_argument(name, type=int, help=argparse.SUPPRESS)
    for name in ("--model", "--meet"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        rank_main(options)
        return
    folder = Path(options.out).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    auto_shares.__file__ = __file__  # which script its ranks run
    print(f"{auto_shares.os.cpu_count()} cores of {auto_shares.processor()}; caps of {PERIOD / 1000:g} ms")
    print("| ranks | samples found | in micro-batches of | even | found | speed-up measured | predicted | gradient off |")
    print("|---|---|---|---|---|---|---|---|")
    for name, parts in SETUPS.items():
        runs = [
            auto_shares.run("transformer", parts, False, options.rounds, folder)
            for _ in range(options.repeat)
        ]
        middle = {
            key: statistics.median(run[key] for run in runs)
            for key in ("even", "uneven", "measured", "predicted", "off")
        }
        of_middle = min(runs, key=lambda run: abs(run["measured"] - middle["measured"]))
        words = (" ".join(map(str, of_middle[key])) for key in ("shares", "micro"))
        print(
            f"| {name} | {' | '.join(words)} | {1e3 * middle['even']:.0f} ms | "
            f"{1e3 * middle['uneven']:.0f} ms | {middle['measured']:.2f} | {middle['predicted']:.2f} | "
            f"{middle['off']:.0e} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
