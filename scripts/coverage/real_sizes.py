#!/usr/bin/env python3
"""Public architectures at the sizes that people train: exported as they come, planned on unequal GPUs.

    PYTHONPATH=python .venv/bin/python scripts/coverage/real_sizes.py [NAME ...] [--cluster FILE] [--save FOLDER]

Models are built from their configurations, with the dropout that these have, and weights are never
allocated. Prints seconds of one process for the export, and the step of the plan. With --save the
graphs are kept in a folder, under their names in small letters, and nothing is planned.
"""

import argparse
import functools
import json
import logging
import os
import subprocess
import tempfile
import time
import warnings
from pathlib import Path

import torch
import transformers
from torch.nn import functional as F

import heterog

ROOT = Path(__file__).resolve().parents[2]
CLASSES = 1000


def words(vocabulary, length):
    return lambda batch: (torch.randint(5, vocabulary, (batch, length)),)


def causal(model, tokens):
    return model(input_ids=tokens, labels=tokens, use_cache=False).loss


def translation(vocabulary, source, target):
    return lambda batch: (
        torch.randint(5, vocabulary, (batch, source)),
        torch.randint(5, vocabulary, (batch, target)),
    )


def translated(model, source, target):
    return model(input_ids=source, labels=target, use_cache=False).loss


def images(batch):
    return torch.randn(batch, 3, 224, 224), torch.randint(0, CLASSES, (batch,))


def classified(model, image, label):
    return F.cross_entropy(model(pixel_values=image).logits, label)


def sounds(batch):
    return torch.randn(batch, 80, 3000), torch.randint(5, 50000, (batch, 100))


def transcribed(model, sound, text):
    return model(input_features=sound, labels=text, use_cache=False).loss


def llama_1b():
    return transformers.LlamaConfig(
        hidden_size=2048, num_hidden_layers=22, num_attention_heads=32, num_key_value_heads=4,
        intermediate_size=5632, vocab_size=32000,
    )  # fmt: skip


def t5_small():
    return transformers.T5Config(
        d_model=512, d_ff=2048, num_layers=6, num_heads=8, decoder_start_token_id=0
    )


def bart_base():
    return transformers.BartConfig(
        d_model=768, encoder_layers=6, decoder_layers=6, encoder_attention_heads=12,
        decoder_attention_heads=12, encoder_ffn_dim=3072, decoder_ffn_dim=3072,
    )  # fmt: skip


def whisper_tiny():
    return transformers.WhisperConfig(
        d_model=384, encoder_layers=4, decoder_layers=4, encoder_attention_heads=6,
        decoder_attention_heads=6, encoder_ffn_dim=1536, decoder_ffn_dim=1536,
    )  # fmt: skip


# Name → how its model is made, its configuration, inputs, loss, batch.
MODELS = {
    "GPT-2 124M": (transformers.GPT2LMHeadModel, transformers.GPT2Config, words(50257, 1024),
                   causal, 32),
    "Llama 1.1B": (transformers.LlamaForCausalLM, llama_1b, words(32000, 1024), causal, 8),
    "Mistral 7B": (transformers.MistralForCausalLM, transformers.MistralConfig,
                   words(32000, 1024), causal, 8),
    "T5 small": (transformers.T5ForConditionalGeneration, t5_small, translation(32128, 512, 128),
                 translated, 64),
    "BART base": (transformers.BartForConditionalGeneration, bart_base,
                  translation(50265, 512, 128), translated, 64),
    "ViT-B/16": (transformers.ViTForImageClassification,
                 functools.partial(transformers.ViTConfig, num_labels=CLASSES), images,
                 classified, 128),
    "Swin-T": (transformers.SwinForImageClassification,
               functools.partial(transformers.SwinConfig, num_labels=CLASSES), images, classified,
               128),
    "Whisper tiny": (transformers.WhisperForConditionalGeneration, whisper_tiny, sounds,
                     transcribed, 64),
}  # fmt: skip


def export(name: str) -> tuple[heterog.TrainingStep, float, int]:
    model, config, make_inputs, loss, batch = MODELS[name]
    begin = time.perf_counter()
    step = heterog.export_training_step(
        lambda: model(config()).train(), make_inputs, loss,
        lambda parameters: torch.optim.AdamW(parameters, lr=1e-4), name, batch=batch,
    )  # fmt: skip
    return step, time.perf_counter() - begin, batch


def planned(step: heterog.TrainingStep, batch: int, cluster: str, program: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        graph = Path(folder) / "graph.json.gz"
        step.save(graph)
        done = subprocess.run(
            [program, "plan", "--graph", graph, "--cluster", cluster, "--batch", str(batch),
             "--out", Path(folder) / "plan.json", "--json"], capture_output=True, text=True,
        )  # fmt: skip
    if done.returncode == 3:
        return "no plan fits in memory"
    if done.returncode != 0:
        return done.stderr.strip().splitlines()[-1]
    said = json.loads(done.stdout)
    used = sum(device["busy_seconds"] > 0 for device in said["devices"])
    return f"{said['step_seconds'] * 1e3:8.1f} ms on {used} of {len(said['devices'])} devices"


def file_name(name: str) -> str:
    return name.lower().replace(" ", "_").replace("/", "") + ".json.gz"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MODELS))
    parser.add_argument("--cluster", default=str(ROOT / "configs/clusters/office-mixed.json"))
    parser.add_argument("--save", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    for name in options.names:
        if name not in MODELS:
            parser.error(f"{name!r} is not known; there are {', '.join(MODELS)}")
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    program = os.environ.get("HETEROG_BIN", str(ROOT / "build/release/bin/heterog"))
    print(f"{'':14} {'parameters':>12} {'ops':>6} {'export s':>9} {'batch':>6}  plan")
    for name in options.names or MODELS:
        step, seconds, batch = export(name)
        parameters = 0
        for tensor in step.graph["tensors"]:
            if tensor["role"] == "parameter":
                parameters += torch.Size(tensor["shape"]).numel()
        if options.save:
            options.save.mkdir(parents=True, exist_ok=True)
            step.save(options.save / file_name(name))
            plan = str(options.save / file_name(name))
        else:
            plan = planned(step, batch, options.cluster, program)
        print(f"{name:14} {parameters:12,} {len(step.graph['ops']):6,} {seconds:9.1f} {batch:6}  {plan}",
              flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
