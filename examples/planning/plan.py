"""Planning from Python: a small model on three unequal cards, planned, explained and verified.

    PYTHONPATH=python .venv/bin/python examples/planning/plan.py
"""

import torch
from torch import nn
from torch.nn import functional as F

import heterog

CARDS = ["V100-PCIE-16GB", "GTX-1080-Ti", "T4"]  # in one host, on PCIe 3


def build() -> nn.Module:
    layers = [nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
              nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]  # fmt: skip
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 16 * 16, 1000))


def make_inputs(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(batch, 3, 64, 64), torch.randint(0, 1000, (batch,))


def main() -> None:
    step = heterog.export_training_step(
        build, make_inputs, lambda model, x, label: F.cross_entropy(model(x), label),
        lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9), "small",
    )  # fmt: skip

    plan = heterog.plan(step, CARDS, batch=96, evaluations=2000)
    print(f"found by {plan.planner}, {plan.evaluations} plans simulated")
    print(f"step {1e3 * plan.step_seconds:.2f} ms, best of plain data parallelism "
          f"{1e3 * min(b.step_seconds for b in plan.baselines if b.feasible):.2f} ms")  # fmt: skip
    for row in plan.rows():
        print(f"  {row['device']}: busy {row['of_step']:.0%} of the step, memory {row['used']:.0%}")

    why = heterog.explain(step, CARDS, plan)
    longest = max(why.stretches, key=lambda stretch: stretch.seconds)
    print(f"longest stretch of the critical path: {longest.what}")
    best = max(why.twice_as_fast, key=lambda upgrade: upgrade.saved_seconds)
    print(f"what would help most: {best.name} twice as fast, {1e3 * best.saved_seconds:.2f} ms less")

    table = heterog.compare(step, CARDS, batch=96, planners=["local-search"], evaluations=500)
    for row in table.planners:
        print(f"  {row.name}: {1e3 * row.step_seconds:.2f} ms")

    shares = heterog.shares(step, CARDS, batch=96)
    print(f"shares for plain DistributedDataParallel: {shares.samples_per_rank}")

    proof = heterog.verify(step, CARDS, plan, at_batch=12, steps=1)
    print(f"verified: {proof.compared} values, worst {max(d.relative for d in proof.worst):.0e}")

    try:
        heterog.plan(step, [{"model": "T4", "memory_bytes": 900_000_000}], batch=96)
    except heterog.NothingFits as error:
        print(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
