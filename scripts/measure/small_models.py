"""The two models that the runtime is measured with: small enough for a CPU, large enough to count.
Their optimizers run fused in PyTorch too.

Each function returns what `python -m heterog.export` wants.
"""

import torch
from torch.nn import functional as F

WORDS, LENGTH, CLASSES = 2000, 64, 10


def bert() -> dict:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=1024,
        max_position_embeddings=LENGTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )

    def inputs(batch):
        return torch.randint(0, WORDS, (batch, LENGTH)), torch.randint(0, WORDS, (batch, LENGTH))

    def loss(model, tokens, labels):
        return F.cross_entropy(model(input_ids=tokens).logits.flatten(0, 1), labels.flatten())

    return dict(
        model=BertForMaskedLM(config),
        make_inputs=inputs,
        loss_fn=loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-4, fused=True),
        name="small_bert",
    )


def convolution() -> dict:
    import torchvision

    def inputs(batch):
        return torch.randn(batch, 3, 64, 64), torch.randint(0, CLASSES, (batch,))

    return dict(
        model=torchvision.models.resnet18(num_classes=CLASSES),
        make_inputs=inputs,
        loss_fn=lambda model, image, label: F.cross_entropy(model(image), label),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9, fused=True),
        name="small_resnet",
    )
