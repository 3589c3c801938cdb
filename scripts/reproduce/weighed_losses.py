"""Losses by frameworks: what heterog.auto_shares weighs by, and how far training is from that of one
process on the whole batches (docs/auto_shares.md).

    .venv/bin/python scripts/reproduce/weighed_losses.py [--only ddp accelerate …] [--out FOLDER]

Three ranks at shares 5, 3, 1 of every batch, float64, SGD, 11 batches; the last is a rest of 6. Each
framework's ranks are started once, as its recipe in examples/uneven is. A number is the largest
relative difference of a parameter at the end; "even" where the loss couples samples and even shares
are kept. Needs examples/uneven/requirements.txt for all columns; what is not installed is left out.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python" / "tests"))
WORLD = 3
NEEDS = {
    "ddp": "torch",
    "accelerate": "accelerate",
    "fabric": "lightning",
    "lightning": "lightning",
    "trainer": "accelerate",
    "timm": "timm",
}
LOSSES = (
    "mean", "classes", "sum", "vae", "tokens", "shifted tokens", "class weights", "smoothed",
    "sample weights", "masked", "count", "contrastive", "root",
)  # fmt: skip
EXACT = 1e-12
RATE = 0.002  # so small that sums, which are many means, do not leave where rounding stays small


def table(only: list[str], out: Path) -> dict[str, dict[str, dict]]:
    """What each framework found of each loss: `said`, and how far it was `off`."""
    found = {}
    for name in only:
        if importlib.util.find_spec(NEEDS[name]) is None:
            print(f"{name}: {NEEDS[name]} is not installed", file=sys.stderr)
            continue
        result = out / f"{name}.json"
        result.unlink(missing_ok=True)
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc-per-node", str(WORLD), __file__, "--rank-of", name, "--out", str(out)]
        paths = [str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=out)
        if done.returncode:
            sys.exit(f"{name}: {done.stderr[-3000:]}")
        found[name] = json.loads(result.read_text(encoding="utf-8"))
    return found


def print_table(found: dict) -> None:
    print(f"| loss | {' | '.join(found)} |")
    print("|" + "---|" * (len(found) + 1))
    for loss in LOSSES:
        cells = [cell(of[loss]) for of in found.values()]
        print(f"| {loss} | {' | '.join(cells)} |")


def cell(result: dict) -> str:
    return "even" if "even shares are kept" in result["said"] else f"{result['off']:.0e}"


def rank_main(name: str, out: Path) -> None:
    import probe_cases as cases
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    found = {}
    framework = FRAMEWORKS[name]()
    for loss in LOSSES:
        case = cases.CASES[loss]
        said: list[str] = []
        with cases.fixed_shares(cases.SHARES):
            parameters = framework(case, said.append)
        expected = alone(case)
        off = max(
            ((ours - theirs).norm() / theirs.norm()).item()
            for ours, theirs in zip(parameters, expected, strict=True)
        )
        found[loss] = {"said": "\n".join(said), "off": off}
    if dist.get_rank() == 0:
        (out / f"{name}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


LENGTH = 96


def alone(case) -> list:
    """One process, by PyTorch alone."""
    import probe_cases as cases

    data = cases.dataset(LENGTH)
    batches = [data[start : start + 9] for start in range(0, LENGTH, 9)]
    return cases.train(case, cases.build(), batches, RATE)


def loader():
    """As an even script of one of the ranks has it, in the data's own order."""
    import probe_cases as cases
    from torch.utils.data import DataLoader

    return DataLoader(cases.dataset(LENGTH), batch_size=9 // WORLD)


def optimizer_of(model):
    import torch

    return torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)


def by_ddp():
    import probe_cases as cases
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import heterog

    dist.init_process_group("gloo")

    def run(case, say):
        ddp = DistributedDataParallel(cases.build())
        batches = heterog.auto_shares(
            ddp, loader(), lambda b: case.loss(ddp, b), say=say, rebalance=None, **case.options
        )
        return cases.train(case, ddp, batches, RATE)

    return run


def by_timm():
    """Its loader around the script's, which moves batches to their device."""
    import probe_cases as cases
    import torch
    import torch.distributed as dist
    from timm.data.loader import PrefetchLoader
    from torch.nn.parallel import DistributedDataParallel

    import heterog

    dist.init_process_group("gloo")

    class Plain(PrefetchLoader):
        """Without the normalisation of images."""

        def __iter__(self):
            return iter(self.loader)

    def run(case, say):
        ddp = DistributedDataParallel(cases.build())
        wrapped = Plain(loader(), device=torch.device("cpu"))
        batches = heterog.auto_shares(
            ddp, wrapped, lambda b: case.loss(ddp, b), say=say, rebalance=None, **case.options
        )
        return cases.train(case, ddp, batches, RATE)

    return run


def by_accelerate():
    import probe_cases as cases
    from accelerate import Accelerator

    import heterog

    accelerator = Accelerator(cpu=True)

    def run(case, say):
        model = cases.build()
        model, optimizer = accelerator.prepare(model, optimizer_of(model))
        batches = heterog.auto_shares(
            model, loader(), lambda b: case.loss(model, b), device=accelerator.device, say=say,
            rebalance=None, **case.options,
        )  # fmt: skip
        for batch in batches:
            optimizer.zero_grad()
            accelerator.backward(case.loss(model, batch))
            optimizer.step()
        return [p.detach() for p in model.parameters()]

    return run


def by_fabric():
    import probe_cases as cases
    from lightning.fabric import Fabric

    import heterog

    fabric = Fabric(accelerator="cpu", devices=WORLD, strategy="ddp")
    fabric.launch()

    def run(case, say):
        model = cases.build()
        model, optimizer = fabric.setup(model, optimizer_of(model))
        batches = fabric.setup_dataloaders(loader(), use_distributed_sampler=False)
        batches = heterog.auto_shares(
            model, batches, lambda b: case.loss(model, b), say=say, rebalance=None, **case.options
        )
        for batch in batches:
            optimizer.zero_grad()
            fabric.backward(case.loss(model, batch))
            optimizer.step()
        return [p.detach() for p in model.parameters()]

    return run


def by_lightning():
    import lightning
    import probe_cases as cases
    import torch

    import heterog

    class Module(lightning.LightningModule):
        def __init__(self, case, say):
            super().__init__()
            self.inner, self.case, self.say = cases.build(), case, say

        def forward(self, x):
            return self.inner(x)

        def training_step(self, batch, index):
            return self.case.loss(self, batch)

        def configure_optimizers(self):
            return optimizer_of(self)

        def train_dataloader(self):
            model = self.trainer.strategy.model
            return heterog.auto_shares(
                model, loader(), lambda b: self.case.loss(model, b), say=self.say, rebalance=None,
                **self.case.options,
            )  # fmt: skip

    def run(case, say):
        trainer = lightning.Trainer(
            accelerator="cpu", devices=WORLD, strategy="ddp", max_epochs=1, logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
            use_distributed_sampler=False,
        )  # fmt: skip
        module = Module(case, say)
        trainer.fit(module)
        return [p.detach().to(torch.float64) for p in module.inner.parameters()]

    return run


def by_trainer():
    """Hugging Face's. Its models take what a batch has by name, and any keyword besides, as those of
    transformers do; no loss here heeds the number of items that it gives them then."""
    import probe_cases as cases
    import torch
    from torch import nn
    from transformers import Trainer, TrainingArguments

    import heterog

    names = ("x", "labels", "weights", "noise", "classes")

    class Model(nn.Module):
        def __init__(self, case):
            super().__init__()
            self.inner, self.case = cases.build(), case

        def forward(self, x, labels, weights, noise, classes, **_):
            return {"loss": self.case.loss(self.inner, (x, labels, weights, noise, classes))}

    class Named(torch.utils.data.Dataset):
        def __init__(self):
            self.data = cases.dataset(LENGTH)

        def __len__(self):
            return LENGTH

        def __getitem__(self, row):
            return dict(zip(names, self.data[row], strict=True))

    def run(case, say):
        options = dict(case.options)
        if "count" in options:
            count = options["count"]
            options["count"] = lambda batch: count([batch[name] for name in names])
        model = Model(case)
        arguments = TrainingArguments(
            output_dir="out", per_device_train_batch_size=9 // WORLD, num_train_epochs=1,
            learning_rate=RATE, lr_scheduler_type="constant", max_grad_norm=0, use_cpu=True,
            save_strategy="no", report_to=[], disable_tqdm=True, remove_unused_columns=False,
        )  # fmt: skip
        uneven = heterog.uneven_trainer(Trainer, say=say, rebalance=None, **options)

        class InOrder(uneven):
            def _get_train_sampler(self, *_):
                return torch.utils.data.SequentialSampler(self.train_dataset)

        trainer = InOrder(
            model=model, args=arguments, train_dataset=Named(), optimizers=(optimizer_of(model), None)
        )
        trainer.train()
        return [p.detach() for p in model.inner.parameters()]

    return run


FRAMEWORKS = {
    "ddp": by_ddp,
    "accelerate": by_accelerate,
    "fabric": by_fabric,
    "lightning": by_lightning,
    "trainer": by_trainer,
    "timm": by_timm,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=list(NEEDS), default=list(NEEDS))
    parser.add_argument("--out", default="out/weighed_losses")
    parser.add_argument("--rank-of", help=argparse.SUPPRESS)
    options = parser.parse_args()
    out = Path(options.out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    if options.rank_of:
        rank_main(options.rank_of, out)
        return
    print_table(table(options.only, out))


if __name__ == "__main__":
    main()
