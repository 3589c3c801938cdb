"""Small made-up data in the formats that scripts of others read: images in folders, MNIST, texts, and
untrained language models with their words.
"""

import csv
import gzip
import random
import struct
from pathlib import Path

WORDS = [f"word{number}" for number in range(24)]


def make_images(folder: Path) -> None:
    """Of six classes, 28 to train: no whole number of batches of 10, and of the rest each rank has 2."""
    from PIL import Image

    numbers = random.Random(3)
    for part, count in (("train", 28), ("val", 10)):
        for index in range(count):
            home = folder / part / f"class{index % 6}"
            home.mkdir(parents=True, exist_ok=True)
            bytes_of = bytes(numbers.randrange(256) for _ in range(3 * 40 * 40))
            Image.frombytes("RGB", (40, 40), bytes_of).save(home / f"{index}.png")


def make_mnist(folder: Path) -> None:
    numbers = random.Random(4)
    folder.mkdir(parents=True)
    for part, count in (("train", 62), ("t10k", 16)):
        images = bytes(numbers.randrange(256) for _ in range(count * 28 * 28))
        labels = bytes(numbers.randrange(10) for _ in range(count))
        for kind, head, body in (
            ("images-idx3", struct.pack(">iiii", 2051, count, 28, 28), images),
            ("labels-idx1", struct.pack(">ii", 2049, count), labels),
        ):
            (folder / f"{part}-{kind}-ubyte").write_bytes(head + body)
            with gzip.open(folder / f"{part}-{kind}-ubyte.gz", "wb") as file:
                file.write(head + body)


def make_texts(folder: Path) -> None:
    numbers = random.Random(5)

    def text(length: int) -> str:
        return " ".join(numbers.choice(WORDS) for _ in range(length))

    (folder / "words.txt").write_text("\n".join(text(40) for _ in range(12)) + "\n", encoding="utf-8")
    with open(folder / "texts.csv", "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["sentence1", "label"])
        rows.writerows([text(numbers.randrange(3, 12)), index % 3] for index in range(22))


def make_language_models(folder: Path) -> None:
    """As save_pretrained writes them: a BERT and a GPT-2 of two layers, and a word a token."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import (
        BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast,
    )  # fmt: skip
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.manual_seed(0)
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "eos_token": "[EOS]"}
    vocabulary = {word: number for number, word in enumerate([*special.values(), *WORDS])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=64, **special)
    bert = BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=64, hidden_dropout_prob=0, attention_probs_dropout_prob=0, num_labels=3,
    )  # fmt: skip
    gpt2 = GPT2Config(
        vocab_size=len(vocabulary), n_embd=16, n_layer=2, n_head=2, n_positions=64, resid_pdrop=0, embd_pdrop=0,
        attn_pdrop=0, bos_token_id=4, eos_token_id=4,
    )  # fmt: skip
    for name, model in (("bert", BertForSequenceClassification(bert)), ("gpt2", GPT2LMHeadModel(gpt2))):
        model.double().save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)


def make(folder: Path) -> None:
    make_images(folder / "images")
    make_mnist(folder / "MNIST" / "raw")
    make_texts(folder)
    try:
        make_language_models(folder)
    except ImportError:
        pass  # recipes that need transformers are left out
