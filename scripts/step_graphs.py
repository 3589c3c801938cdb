#!/usr/bin/env python3
"""Exports the graphs of the training steps in configs/calibration/model_steps.csv to out/steps.

    .venv/bin/python scripts/step_graphs.py [NAME ...]

scripts/check_costs.py --steps reads them. Graphs that are there already stay. Beside the models of
that table it can make variants that show what a precision or a layout changes: NAME-tf32, NAME-amp
(half precision by autocast), and either of them with -nhwc (channels-last).
"""

import argparse
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))
OUT = ROOT / "out/steps"

import torch  # noqa: E402
import torchvision  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import heterog  # noqa: E402
from heterog import zoo  # noqa: E402

NAMES = ["alexnet", "densenet121", "inception_v3", "resnet101", "resnet152", "resnet18", "resnet200",
         "resnet34", "resnet50", "vgg16", "vgg16_bn", "vgg19"]  # fmt: skip


def images(size):
    return lambda batch: (torch.randn(batch, 3, size, size), torch.randint(0, 1000, (batch,)))


def export(name):
    model, *options = name.split("-")
    autocast = "amp" in options
    if "tf32" in options or autocast:
        torch.set_float32_matmul_precision("high")
    layout = torch.channels_last if "nhwc" in options else torch.contiguous_format
    if model in zoo.names() and model != "inception_v3":
        spec = zoo.get(model)
        factory, inputs, loss, optimizer = spec.factory, spec.make_inputs, spec.loss_fn, spec.optimizer
    else:
        # The published steps of Inception are without its auxiliary head.
        bare = {"aux_logits": False, "init_weights": False} if model == "inception_v3" else {}
        factory = lambda: getattr(torchvision.models, model)(**bare)  # noqa: E731
        inputs = images(299 if model == "inception_v3" else 224)
        loss = lambda net, image, label: F.cross_entropy(net(image), label)  # noqa: E731
        optimizer = lambda parameters: torch.optim.SGD(parameters, 0.1, 0.9)  # noqa: E731

    def laid_out():
        return factory().to(memory_format=layout)

    def shaped(batch):
        return tuple(t.to(memory_format=layout) if t.dim() == 4 else t for t in inputs(batch))

    path = OUT / f"{name}.json.gz"
    heterog.export_training_step(
        laid_out, shaped, loss, optimizer, model, autocast="bfloat16" if autocast else None
    ).save(path)
    print(path, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=NAMES)
    OUT.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    for name in parser.parse_args().names:
        if not (OUT / f"{name}.json.gz").exists():
            export(name)


if __name__ == "__main__":
    main()
