"""Losses show what they divide by, so that slices of a batch add up to the whole batch's gradient."""

import pytest
import torch
from support import BATCH, Case, build, close, export, given_values, inputs_of
from torch import nn
from torch.nn import functional as F

from heterog.export.interpreter import run


def sigmoid(loss):
    return lambda x, y: loss(x.sigmoid(), y)


def log(loss):
    return lambda x, y: loss(x.log_softmax(1), y)


LOSSES = {
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "smooth_l1": F.smooth_l1_loss,
    "huber": lambda x, y: F.huber_loss(x, y, delta=0.3),
    "bce": sigmoid(F.binary_cross_entropy),
    "bce_with_logits": lambda x, y: F.binary_cross_entropy_with_logits(
        x, y, pos_weight=torch.full((4,), 2.0, dtype=x.dtype)
    ),
    "kl_div": log(lambda x, y: F.kl_div(x, y, reduction="batchmean")),
    "soft_margin": lambda x, y: F.soft_margin_loss(x, y),
    "soft_labels": F.cross_entropy,
    "poisson": F.poisson_nll_loss,
    "mean_of_squares": lambda x, y: (x - y).pow(2).mean(),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_of_slices_add_up(name):
    case = Case(
        lambda: nn.Linear(6, 4),
        lambda batch: (torch.randn(batch, 6), torch.rand(batch, 4)),
        lambda model, x, y: LOSSES[name](model(x), y),
        options={"double": True},
    )
    graph = export(case)
    inputs = inputs_of(graph, case)
    model = build(case)
    loss = case.loss_fn(model, *inputs.values())
    loss.backward()

    total: dict = {}
    for start, end in ((0, 2), (2, BATCH)):
        part = {key: value[start:end] for key, value in inputs.items()}
        values = given_values(graph, model, part)
        tensors = run(graph, values, end - start, whole=BATCH)
        for tensor, entry in zip(tensors, graph["tensors"], strict=True):
            if entry["role"] == "gradient":
                parameter = graph["tensors"][entry["of"]]["name"]
                total[parameter] = total.get(parameter, 0) + tensor
    whole = run(graph, given_values(graph, model, inputs), BATCH)
    close(whole[graph["loss"]], loss, 1e-12, "loss")
    for parameter, tensor in model.named_parameters():
        close(total[parameter], tensor.grad, 1e-12, parameter)
