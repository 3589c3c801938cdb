"""What it costs a runner to know, before each step, that nothing has changed, and to follow a program
that looks at its model after every step.

    .venv/bin/python scripts/measure/changes.py [--layers 200] [--width 64]

A model of so many blocks of nn.Linear, nn.LayerNorm and nn.GELU, on two devices of this CPU. Times are
the median of many calls, in microseconds of one thread.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))


def median(call, repeats: int = 201) -> float:
    """In microseconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--layers", type=int, default=200)
    parser.add_argument("--width", type=int, default=64)
    options = parser.parse_args()
    import torch
    from torch import nn

    import heterog

    torch.set_num_threads(1)
    width = options.width
    blocks = [nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.GELU())
              for _ in range(options.layers)]  # fmt: skip
    model = nn.Sequential(*blocks)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def inputs(batch):
        return torch.randn(batch, width), torch.randn(batch, width)

    def loss_fn(model, x, y):
        return nn.functional.mse_loss(model(x), y)

    batch = inputs(8)
    with tempfile.TemporaryDirectory() as cache:
        config = {"batch": 8, "cache": cache, "check": False, "threads": 1, "planner": "ev-ar"}
        with heterog.get_runner(model, inputs, loss_fn, optimizer, "cpu:2", config) as runner:
            registry, program = runner._registry, runner._program
            modules = sum(1 for _ in model.modules())
            parameters = sum(1 for _ in model.parameters())
            print(f"{options.layers} layers: {modules} modules, {parameters} parameters, "
                  f"{sum(map(len, registry._kept)):,} entries compared")  # fmt: skip
            print(f"nothing looked at: registry {median(lambda: registry.changed(False)):.0f} us, "
                  f"values {median(program.hand_over):.0f} us")  # fmt: skip
            print(f"after a look: registry {median(lambda: registry.changed(True)):.0f} us")

            def look():
                model[0][0].weight.sum()

            def step():
                runner.step(batch)

            def step_and_look():
                look()
                runner.step(batch)

            step()
            plain, looked = median(step, 15), median(step_and_look, 15)
            print(f"a step {plain:.0f} us; with a look before each {looked:.0f} us")


if __name__ == "__main__":
    main()
