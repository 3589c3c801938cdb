"""Models of LSTMs: GNMT with attention, and a word-level language model."""

from functools import partial

import torch
from torch import nn

from .sizes import GNMT_SEQUENCE, GNMT_VOCABULARY, LSTM_LM_SEQUENCE, LSTM_LM_VOCABULARY
from .spec import Published, Spec, adam, generator, plain_sgd
from .transformer import sentence_pairs, translation_loss


class NormalisedAttention(nn.Module):
    """Bahdanau attention with a normalised scorer: [B, T, H] over [B, S, H] → context [B, T, H]."""

    def __init__(self, width: int):
        super().__init__()
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.scorer = nn.Parameter(torch.empty(width).uniform_(-0.1, 0.1))
        self.scale = nn.Parameter(torch.full((1,), width**-0.5))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x, memory):
        hidden = torch.tanh(
            self.query(x).unsqueeze(2) + self.key(memory).unsqueeze(1) + self.bias)
        scores = hidden @ (self.scorer / self.scorer.norm() * self.scale)
        return scores.softmax(-1) @ memory


class Gnmt(nn.Module):
    """Source and target tokens [B, S] → logits [B, S, vocabulary], shaped as NVIDIA's GNMT v2.

    The first encoder layer is bidirectional; the first decoder layer asks the attention, whose
    context goes into all later layers; residuals from the third layer on.
    """

    def __init__(self, layers: int, width: int, vocabulary: int, dropout: float = 0.2):
        super().__init__()
        lstm = partial(nn.LSTM, hidden_size=width, batch_first=True)
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=0)
        self.encoder = nn.ModuleList(
            [lstm(width, bidirectional=True), lstm(2 * width)]
            + [lstm(width) for _ in range(layers - 2)])
        self.attention = NormalisedAttention(width)
        self.decoder = nn.ModuleList([lstm(width)] + [lstm(2 * width) for _ in range(layers - 1)])
        self.classifier = nn.Linear(width, vocabulary)
        self.dropout = nn.Dropout(dropout)

    def forward(self, source, target):
        memory = self.embedding(source)
        for depth, layer in enumerate(self.encoder):
            output, _ = layer(self.dropout(memory))
            memory = memory + output if depth >= 2 else output
        x, _ = self.decoder[0](self.dropout(self.embedding(target)))
        context = self.attention(x, memory)
        for depth, layer in enumerate(self.decoder[1:], start=1):
            output, _ = layer(torch.cat([self.dropout(x), context], dim=-1))
            x = x + output if depth >= 2 else output
        return self.classifier(x)


class LstmLanguageModel(nn.Module):
    """Tokens [B, S] → logits [B, S, vocabulary]; the large model of Zaremba et al. (2014)."""

    def __init__(self, width: int, vocabulary: int, dropout: float = 0.65):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(nn.LSTM(width, width, batch_first=True) for _ in range(2))
        self.classifier = nn.Linear(width, vocabulary)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x, _ = layer(self.dropout(x))
        return self.classifier(self.dropout(x))


def running_text(sequence: int, vocabulary: int):
    """Tokens and the tokens that follow them: [B, sequence] each."""

    def make(batch: int) -> tuple:
        text = torch.randint(0, vocabulary, (batch, sequence + 1), generator=generator(batch))
        return text[:, :-1].contiguous(), text[:, 1:].contiguous()

    return make


def next_token_loss(model: nn.Module, tokens, following) -> torch.Tensor:
    return nn.functional.cross_entropy(model(tokens).flatten(0, 1), following.flatten())


def specs() -> list[Spec]:
    gnmt_source = "PipeDream's profile of GNMT, less its second embedding, with attention's scale and bias"
    return [
        Spec("gnmt4", partial(Gnmt, 4, 1024, GNMT_VOCABULARY),
             sentence_pairs(GNMT_SEQUENCE, GNMT_VOCABULARY), translation_loss, adam(1e-3),
             f"4 + 4 layers, width 1024, {GNMT_SEQUENCE} tokens",
             Published(193765952 - GNMT_VOCABULARY * 1024 + 1025, gnmt_source)),
        Spec("gnmt4-tiny", partial(Gnmt, 3, 8, 50), sentence_pairs(4, 50), translation_loss,
             adam(1e-3), "3 + 3 layers, width 8, 4 tokens"),
        Spec("nmt4", partial(Gnmt, 4, 2048, GNMT_VOCABULARY),
             sentence_pairs(GNMT_SEQUENCE, GNMT_VOCABULARY), translation_loss, adam(1e-3),
             f"4 + 4 layers, width 2048, {GNMT_SEQUENCE} tokens"),
        Spec("nmt4-tiny", partial(Gnmt, 3, 12, 50), sentence_pairs(3, 50), translation_loss,
             adam(1e-3), "3 + 3 layers, width 12, 3 tokens"),
        Spec("lstm_lm", partial(LstmLanguageModel, 1500, LSTM_LM_VOCABULARY),
             running_text(LSTM_LM_SEQUENCE, LSTM_LM_VOCABULARY), next_token_loss, plain_sgd(1.0),
             f"2 layers, width 1500, {LSTM_LM_SEQUENCE} tokens",
             Published(66_000_000, "Zaremba et al. 2014, 66M", 0.01)),
        Spec("lstm_lm-tiny", partial(LstmLanguageModel, 8, 50), running_text(4, 50), next_token_loss,
             plain_sgd(1.0), "2 layers, width 8, 4 tokens"),
    ]  # fmt: skip
