"""BERT and XLNet from the transformers library, with the losses of their pretraining."""

from functools import partial

import torch
from torch import nn
from transformers import BertConfig, BertForPreTraining, XLNetConfig, XLNetLMHeadModel

from .sizes import BERT_SEQUENCE, SMALL_BERT_SEQUENCE, XLNET_SEQUENCE
from .spec import Published, Spec, adam, generator

IGNORED = -100  # the label of a token that is not predicted
PREDICTED = 0.15  # share of tokens whose prediction counts


def bert(layers: int, **tiny_sizes) -> nn.Module:
    sizes = dict(hidden_size=1024, num_attention_heads=16, intermediate_size=4096)
    sizes.update(tiny_sizes)
    return BertForPreTraining(
        BertConfig(num_hidden_layers=layers, attn_implementation="eager", **sizes))


def xlnet(layers: int, **tiny_sizes) -> nn.Module:
    sizes = dict(d_model=1024, n_head=16, d_inner=4096)
    sizes.update(tiny_sizes)
    model = XLNetLMHeadModel(XLNetConfig(n_layer=layers, **sizes))
    # Stands for tokens of the second stream, which this step does not have.
    model.transformer.mask_emb.requires_grad_(False)
    return model


def masked_tokens(sequence: int, vocabulary: int):
    """Tokens, which of them are not padding, kinds of tokens, labels: each [B, sequence]."""

    def make(batch: int) -> tuple:
        rng = generator(batch)
        tokens = torch.randint(1, vocabulary, (batch, sequence), generator=rng)
        present = torch.ones(batch, sequence, dtype=torch.int64)
        present[:, -1] = 0
        kinds = torch.randint(0, 2, (batch, sequence), generator=rng)
        predicted = torch.rand(batch, sequence, generator=rng) < PREDICTED
        return tokens, present, kinds, torch.where(predicted, tokens, IGNORED)

    return make


def bert_inputs(sequence: int, vocabulary: int):
    """Those of a masked language model, and whether the second sentence follows the first: [B]."""
    make_tokens = masked_tokens(sequence, vocabulary)

    def make(batch: int) -> tuple:
        follows = torch.randint(0, 2, (batch,), generator=generator(batch))
        return *make_tokens(batch), follows

    return make


def bert_loss(model: nn.Module, tokens, present, kinds, labels, follows) -> torch.Tensor:
    return model(tokens, attention_mask=present, token_type_ids=kinds, labels=labels,
                 next_sentence_label=follows).loss  # fmt: skip


def xlnet_loss(model: nn.Module, tokens, present, kinds, labels) -> torch.Tensor:
    return model(tokens, attention_mask=present, token_type_ids=kinds, labels=labels).loss


BERT_TINY = dict(hidden_size=16, num_attention_heads=2, intermediate_size=32, vocab_size=50,
                 max_position_embeddings=12)  # fmt: skip
XLNET_TINY = dict(d_model=16, n_head=2, d_inner=32, vocab_size=50)
TINY_SEQUENCE = 7


def specs() -> list[Spec]:
    result = []

    def add(kind, layers, full, tiny, inputs, sequence, vocabulary, loss, published):
        name = f"{kind}_large{layers}"
        result.append(
            Spec(name, partial(full, layers), inputs(sequence, vocabulary), loss, adam(1e-4),
                 f"{layers} layers, {sequence} tokens", published))
        layers = layers // 24
        result.append(
            Spec(f"{name}-tiny", partial(full, layers, **tiny), inputs(TINY_SEQUENCE, 50), loss,
                 adam(1e-4), f"{layers} layers, {TINY_SEQUENCE} tokens"))  # fmt: skip

    for layers, published in (
        (24, Published(340_000_000, "Devlin et al. 2018, 340M", 0.02)),
        (48, Published(640_000_000, "SPP, Table II, 640M", 0.01)),
    ):
        add("bert", layers, bert, BERT_TINY, bert_inputs, BERT_SEQUENCE[layers], 30522, bert_loss, published)
    # Widths of the depth in Turc et al. 2019 that come nearest to the parameters that AutoSync says.
    for name, layers, width, published in (
        ("bert3", 3, 256, Published(11_000_000, "AutoSync, 11M", 0.05)),
        ("bert6", 6, 512, Published(36_000_000, "AutoSync, 36M", 0.02)),
        ("bert_base12", 12, 768, Published(110_000_000, "Devlin et al. 2018, 110M", 0.01)),
    ):
        full = partial(bert, layers, hidden_size=width, num_attention_heads=width // 64,
                       intermediate_size=4 * width)  # fmt: skip
        result.append(
            Spec(name, full, bert_inputs(SMALL_BERT_SEQUENCE, 30522), bert_loss, adam(1e-4),
                 f"{layers} layers, width {width}, {SMALL_BERT_SEQUENCE} tokens", published))
        tiny_layers = max(1, layers // 6)
        sizes = BERT_TINY | dict(hidden_size=width // 16, intermediate_size=width // 8)
        result.append(
            Spec(f"{name}-tiny", partial(bert, tiny_layers, **sizes), bert_inputs(TINY_SEQUENCE, 50),
                 bert_loss, adam(1e-4),
                 f"{tiny_layers} layers, width {width // 16}, {TINY_SEQUENCE} tokens"))  # fmt: skip
    for layers, published in (
        (24, Published(340_000_000, "transformers' documentation of xlnet-large-cased, 340M", 0.07)),
        (48, None),
    ):
        add("xlnet", layers, xlnet, XLNET_TINY, masked_tokens, XLNET_SEQUENCE[layers], 32000, xlnet_loss,
            published)  # fmt: skip
    return result
