"""Architectures of transformers, built from their configurations at tiny sizes.

Language models get an attention mask and labels beside their tokens, as the library's collators
hand them out, and give their own loss.
"""

from functools import partial

import torch
import transformers
from torch import nn

import transformers_other as other
import transformers_text as text
from entry import CLASSES, Entry, adamw

IGNORED = -100  # the label of a token that does not count
PATCHES = 16  # of an image of SIDE with patches of 8


def entries() -> list[Entry]:
    auto = transformers
    kinds = [
        ("causal", text.CAUSAL, auto.AutoModelForCausalLM, sentences, text_loss),
        ("experts", text.EXPERT, auto.AutoModelForCausalLM, sentences, text_loss),
        ("masked", text.MASKED, auto.AutoModelForMaskedLM, masked, text_loss),
        ("sequence", text.SEQUENCE, auto.AutoModelForSeq2SeqLM, sentences, text_loss),
        ("vision", other.IMAGES, auto.AutoModelForImageClassification, pictures, picture_loss),
        ("segmentation", other.SEGMENTATION, auto.AutoModelForSemanticSegmentation, segments,
         picture_loss),
        ("recognition", other.RECOGNITION, auto.AutoModelForCTC, waves, wave_loss),
        ("sounds", other.SOUNDS, auto.AutoModelForAudioClassification, sounds, wave_loss),
        ("speech", other.SPEECH, auto.AutoModelForSpeechSeq2Seq, spectrograms, speech_loss),
        ("contrast", other.CONTRAST, auto.AutoModel, captions, contrast_loss),
    ]  # fmt: skip
    made = [
        Entry(_name(name, kind), kind, partial(build, factory, name, sizes),
              *_special(name, make, loss), adamw)
        for kind, table, factory, make, loss in kinds
        for name, sizes in table.items()
    ]  # fmt: skip
    for name, (model, sizes) in other.IMAGE_TEXT.items():
        make = partial(continued, other.IMAGE_TEXT[name][1].get("image_token_index"))
        made.append(Entry(_name(name, ""), "image and text",
                          partial(build, getattr(transformers, model), name, sizes), make,
                          continued_loss, adamw))  # fmt: skip
    return made


def _name(name: str, kind: str) -> str:
    """Of a model type; some stand in two tables, as what they do differs."""
    more = f"-{kind}" if kind in ("segmentation", "sounds", "contrast") else ""
    return f"transformers/{name}{more}"


def _special(name: str, make, loss) -> tuple:
    if name == "fnet":  # mixes all places of a sentence, and has no mask
        return unmasked, token_class_loss
    if name == "imagegpt":
        return pixels, token_class_loss
    if name == "audio-spectrogram-transformer":
        return spectrum_classes, wave_loss
    if name == "moonshine":
        return wave_texts, wave_text_loss
    return make, loss


def build(factory, name: str, sizes: dict) -> nn.Module:
    classes = {} if factory in _WORDS else {"num_labels": CLASSES}
    config = transformers.AutoConfig.for_model(name, **sizes, **classes)
    made = factory.from_config(config) if hasattr(factory, "from_config") else factory(config)
    if name == "xmod":
        made.set_default_language("en_XX")
    return made.train()


_WORDS = {transformers.AutoModelForCausalLM, transformers.AutoModelForMaskedLM,
          transformers.AutoModelForSeq2SeqLM, transformers.AutoModelForCTC,
          transformers.AutoModelForSpeechSeq2Seq}  # fmt: skip


def _tokens(batch: int, length: int = text.LENGTH) -> torch.Tensor:
    return torch.randint(4, text.WORDS - 1, (batch, length))


def _padding(batch: int) -> torch.Tensor:
    """1 for a token, 0 behind the end of a sentence: every second one is two tokens shorter."""
    mask = torch.ones(batch, text.LENGTH, dtype=torch.int64)
    mask[::2, -2:] = 0
    return mask


def sentences(batch: int) -> tuple:
    tokens, mask = _tokens(batch), _padding(batch)
    return tokens, mask, torch.where(mask == 1, tokens, IGNORED)


def masked(batch: int) -> tuple:
    tokens, mask = _tokens(batch), _padding(batch)
    guessed = torch.zeros(text.LENGTH, dtype=torch.bool)
    guessed[1::4] = True
    return tokens, mask, torch.where(guessed & (mask == 1), tokens, IGNORED)


def unmasked(batch: int) -> tuple:
    tokens, _, labels = masked(batch)
    return tokens, labels


def text_loss(model, input_ids, attention_mask, labels):
    return model(input_ids=input_ids, attention_mask=attention_mask, labels=labels).loss


def pictures(batch: int) -> tuple:
    return torch.randn(batch, 3, other.SIDE, other.SIDE), torch.randint(0, CLASSES, (batch,))


def segments(batch: int) -> tuple:
    side = other.SIDE
    return torch.randn(batch, 3, side, side), torch.randint(0, CLASSES, (batch, side, side))


def picture_loss(model, pixel_values, labels):
    return model(pixel_values=pixel_values, labels=labels).loss


def pixels(batch: int) -> tuple:
    return _tokens(batch), torch.randint(0, CLASSES, (batch,))


def token_class_loss(model, input_ids, labels):
    return model(input_ids=input_ids, labels=labels).loss


def waves(batch: int) -> tuple:
    return torch.randn(batch, other.SOUND), torch.randint(1, text.WORDS, (batch, 3))


def sounds(batch: int) -> tuple:
    return torch.randn(batch, other.SOUND), torch.randint(0, CLASSES, (batch,))


def spectrum_classes(batch: int) -> tuple:
    return torch.randn(batch, other.FRAMES, other.BANDS), torch.randint(0, CLASSES, (batch,))


def wave_loss(model, input_values, labels):
    return model(input_values, labels=labels).loss


def wave_texts(batch: int) -> tuple:
    return torch.randn(batch, other.SOUND), _tokens(batch)


def wave_text_loss(model, input_values, labels):
    return model(input_values=input_values, labels=labels).loss


def spectrograms(batch: int) -> tuple:
    return torch.randn(batch, other.BANDS, other.FRAMES), _tokens(batch)


def speech_loss(model, input_features, labels):
    if isinstance(model, transformers.Speech2TextForConditionalGeneration):
        input_features = input_features.transpose(1, 2)
    return model(input_features=input_features, labels=labels).loss


def captions(batch: int) -> tuple:
    return _tokens(batch), _padding(batch), pictures(batch)[0]


def contrast_loss(model, input_ids, attention_mask, pixel_values):
    return model(input_ids=input_ids, attention_mask=attention_mask, pixel_values=pixel_values,
                 return_loss=True).loss  # fmt: skip


def continued(placeholder: int | None, batch: int) -> tuple:
    """A text, before it the places of an image's patches where the model wants them among tokens."""
    tokens, mask = _tokens(batch), _padding(batch)
    if placeholder is not None:
        tokens = torch.cat([torch.full((batch, PATCHES), placeholder), tokens], 1)
        mask = torch.cat([torch.ones(batch, PATCHES, dtype=torch.int64), mask], 1)
    labels = torch.where((mask == 1) & (tokens != (placeholder or -1)), tokens, IGNORED)
    return tokens, mask, pictures(batch)[0], labels


def continued_loss(model, input_ids, attention_mask, pixel_values, labels):
    return model(input_ids=input_ids, attention_mask=attention_mask, pixel_values=pixel_values,
                 labels=labels).loss  # fmt: skip
