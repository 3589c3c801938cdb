#!/usr/bin/env python3
"""Exports the graphs of the training steps in configs/calibration/model_steps*.csv to out/steps.

    .venv/bin/python scripts/calibrate/step_graphs.py [NAME ...]

scripts/calibrate/steps.py reads them. Graphs that are there already stay. Beside the models of
those tables it can make variants that show what a precision or a layout changes: NAME-tf32, NAME-amp
(float16 by autocast), NAME-masters (float16 copies of the parameters), NAME-bf16 (bfloat16 by
autocast), and each of them with -nhwc (channels-last).
"""

import argparse
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
OUT = ROOT / "out/steps"

import torch  # noqa: E402
import torchvision  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import heterog  # noqa: E402
from heterog import zoo  # noqa: E402

NAMES = ["alexnet", "densenet121", "inception_v3", "resnet101", "resnet152", "resnet18", "resnet200",
         "resnet34", "resnet50", "vgg16", "vgg16_bn", "vgg19", "resnet50-tf32", "vgg16-tf32",
         "resnet50-amp-nhwc", "bert_base_squad384", "bert_base_squad384-tf32",
         "bert_base_squad384-masters", "bert_large512"]  # fmt: skip
QUESTIONS, BERT_VOCABULARY = 384, 30522  # tokens of a question with its text


def bert_base_squad():
    """(model, inputs, loss, optimizer) of fine-tuning BERT-base on questions, attention written out
    as in 2019 to 2021."""
    from transformers import BertConfig, BertForQuestionAnswering

    def inputs(batch):
        tokens = torch.randint(1, BERT_VOCABULARY, (batch, QUESTIONS))
        present = torch.ones(batch, QUESTIONS, dtype=torch.int64)
        kinds = torch.zeros(batch, QUESTIONS, dtype=torch.int64)
        begin, end = torch.randint(0, QUESTIONS, (2, batch))
        return tokens, present, kinds, begin, end

    def loss(net, tokens, present, kinds, begin, end):
        return net(tokens, attention_mask=present, token_type_ids=kinds, start_positions=begin,
                   end_positions=end).loss  # fmt: skip

    return (lambda: BertForQuestionAnswering(BertConfig(attn_implementation="eager")), inputs, loss,
            lambda parameters: torch.optim.Adam(parameters, 3e-5))  # fmt: skip


def bert_large():
    """BERT-large on 512 tokens with its head for masked words, as NeuSight timed it."""
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(num_hidden_layers=24, hidden_size=1024, num_attention_heads=16,
                        intermediate_size=4096, attn_implementation="eager")  # fmt: skip

    def inputs(batch):
        return torch.randint(1, BERT_VOCABULARY, (batch, 512)), torch.randint(0, BERT_VOCABULARY, (batch, 512))

    def loss(net, tokens, labels):
        return net(tokens, labels=labels).loss

    return (lambda: BertForMaskedLM(config), inputs, loss,
            lambda parameters: torch.optim.SGD(parameters, 0.1))  # fmt: skip


LANGUAGE = {"bert_base_squad384": bert_base_squad, "bert_large512": bert_large}


def images(size):
    return lambda batch: (torch.randn(batch, 3, size, size), torch.randint(0, 1000, (batch,)))


def export(name):
    model, *options = name.split("-")
    half = "float16" if "amp" in options else "bfloat16" if "bf16" in options else None
    masters = "float16" if "masters" in options else None
    layout = torch.channels_last if "nhwc" in options else torch.contiguous_format
    torch.set_float32_matmul_precision("high" if options else "highest")
    if model in LANGUAGE:
        factory, inputs, loss, optimizer = LANGUAGE[model]()
    elif model in zoo.names() and model != "inception_v3":
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
        laid_out, shaped, loss, optimizer, model, autocast=half, param_dtype=masters,
        clip_norm=1.0 if "squad" in model else None,
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
