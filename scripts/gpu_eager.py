"""Steps of a model of the zoo by eager PyTorch on a GPU, timed by its events.

    PYTHONPATH=python .venv/bin/python scripts/gpu_eager.py resnet50 --batch 32 [--steps 20]
"""

import argparse
import statistics

import torch

from heterog import zoo


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="as in models/README.md")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--steps", type=int, default=20, help="after three to warm up")
    options = parser.parse_args()

    spec = zoo.get(options.model)
    device = torch.device("cuda")
    model = spec.factory().to(device)
    optimizer = spec.optimizer(model.parameters())
    inputs = tuple(t.to(device) for t in spec.make_inputs(options.batch))
    seconds = []
    for step in range(options.steps + 3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        optimizer.zero_grad()
        spec.loss_fn(model, *inputs).backward()
        optimizer.step()
        end.record()
        end.synchronize()
        if step >= 3:
            seconds.append(begin.elapsed_time(end) / 1e3)
    print(f"{options.model} on {torch.cuda.get_device_name()}, batch {options.batch}: eager PyTorch "
          f"{torch.__version__} {1e3 * statistics.median(seconds):.2f} ms a step (median of "
          f"{options.steps}), peak {torch.cuda.max_memory_allocated() / 1e9:.2f} GB")  # fmt: skip


if __name__ == "__main__":
    main()
