"""Functions of PyTorch that a trace takes in another form: theirs ask for values, or decide by the
number of rows."""

import math

import torch

from heterog.base.errors import ExportError

_BY_ROWS = "use_mm_for_euclid_dist_if_necessary"
# From so many rows on, PyTorch computes Euclidean distances by a product of matrices.
_MANY_ROWS = 26


class Distances:
    """torch.cdist, where the number of rows decides how: each call as at the first batch that was
    traced, the smallest."""

    def __init__(self, by_product: list[bool]):
        """`by_product`: of each call in turn, as far as they are known; longer afterwards."""
        self._by_product = by_product
        self._calls = 0

    def __call__(self, x1, x2, p=2.0, compute_mode=_BY_ROWS):
        if p == 2 and compute_mode == _BY_ROWS:
            if self._calls == len(self._by_product):
                self._by_product.append(max(x1.size(-2), x2.size(-2)) >= _MANY_ROWS)
            by_product = self._by_product[self._calls]
            compute_mode = f"{'' if by_product else 'donot_'}use_mm_for_euclid_dist"
            self._calls += 1
        return torch.cdist(x1, x2, p, compute_mode)


def gaussian_nll_loss(input, target, var, full=False, eps=1e-6, reduction="mean"):
    """PyTorch's, but for what it asks of the data: whether a variance is below 0."""
    if isinstance(var, float):
        var = var * torch.ones_like(input)
    if var.dim() == input.dim() - 1:
        var = var.unsqueeze(-1)
    limited = var.clone()
    with torch.no_grad():
        limited.clamp_(min=eps)
    loss = 0.5 * (limited.log() + (input - target) ** 2 / limited)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return {"mean": loss.mean, "sum": loss.sum, "none": lambda: loss}[reduction]()


def ctc_loss(
    log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False
):
    """By the recursion over time, in a dozen operators a step of it: the size of what PyTorch's
    operator keeps for its backward pass follows from the lengths."""
    if log_probs.dim() != 3 or targets.dim() != 2:
        raise ExportError(
            "ctc_loss: targets in one row, or no batch; a step takes log_probs of (T, N, C) and targets "
            "of (N, S), padded, with their lengths in target_lengths"
        )
    steps, batch, _ = log_probs.shape
    times = _lengths("input_lengths", input_lengths, targets)
    lengths = _lengths("target_lengths", target_lengths, targets)
    inside = torch.arange(targets.size(1)) < lengths[:, None]
    labels = torch.where(inside, targets.long(), blank)
    # States: the labels, with a blank before each and one behind the last.
    blanks = torch.full_like(labels, blank)
    states = torch.cat([torch.stack([blanks, labels], 2).flatten(1), blanks[:, :1]], 1)
    emitted = log_probs.gather(2, states.expand(steps, *states.shape))
    never = torch.finfo(log_probs.dtype).min / 4  # of what cannot be; finite, so gradients are
    skips = (states[:, 2:] != blank) & (states[:, 2:] != states[:, :-2])
    at_first = torch.arange(states.size(1)) < 2
    alpha = torch.where(at_first, emitted[0], never)
    pad = torch.nn.functional.pad
    for step in range(1, steps):
        last = pad(alpha[:, :-1], (1, 0), value=never)
        before = pad(torch.where(skips, alpha[:, :-2], never), (2, 0), value=never)
        following = torch.stack([alpha, last, before]).logsumexp(0) + emitted[step]
        alpha = torch.where(step < times[:, None], following, alpha)
    ends = alpha.gather(1, torch.stack([2 * lengths, (2 * lengths - 1).clamp(min=0)], 1))
    both = torch.stack([ends[:, 0], torch.where(lengths > 0, ends[:, 1], never)]).logsumexp(0)
    loss = torch.where(both < never / 2, 0.0 if zero_infinity else math.inf, -both)
    if reduction == "mean":
        return (loss / lengths.clamp(min=1)).mean()
    return loss.sum() if reduction == "sum" else loss


def _lengths(name: str, given, like: torch.Tensor) -> torch.Tensor:
    if isinstance(given, torch.Tensor):
        return given.long()
    if any(length != given[0] for length in given):
        raise ExportError(
            f"ctc_loss: {name} are numbers that are not all the same; make them a tensor among the "
            "inputs of loss_fn"
        )
    return torch.full((like.size(0),), given[0], dtype=torch.long)


def set_data(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """tensor.data = value, which a trace does not see, as a write that it does."""
    if tensor.shape != value.shape or tensor.dtype != value.dtype:
        raise ExportError(
            f"a tensor of {tensor.dtype} and shape {list(tensor.shape)} is given data of "
            f"{value.dtype} and shape {list(value.shape)} while the step runs; it keeps both"
        )
    tensor.data.copy_(value)


# What takes their place.
INSTEAD = {
    torch.nn.functional.gaussian_nll_loss: gaussian_nll_loss,
    torch.nn.functional.ctc_loss: ctc_loss,
    torch.Tensor.data.__set__: set_data,
}
