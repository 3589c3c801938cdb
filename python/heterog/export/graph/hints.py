"""What a file says of the values of buffers and inputs, so that a step can be run from it alone."""

import math

import torch

# Longer tables than this are left to the program that has the model.
_MOST_VALUES = 4096


def buffer_values(tensor: torch.Tensor) -> dict:
    """{"fill": v}, {"start": s, "step": d} along the last dimension, {"list": […]}, or nothing."""
    if tensor.device.type == "meta" or tensor.numel() == 0 or tensor.is_complex():
        return {}
    values = tensor.detach().cpu()
    first = values.flatten()[0]
    if bool((values == first).all()):
        return {"values": {"fill": _number(first.item())}}
    if not values.dtype.is_floating_point and values.dtype != torch.bool:
        rows = values.reshape(-1, values.shape[-1])
        row = rows[0].tolist()
        step = row[1] - row[0] if len(row) > 1 else 0
        steady = row == [row[0] + step * i for i in range(len(row))]
        if steady and step and bool((rows == rows[:1]).all()):
            return {"values": {"start": row[0], "step": step}}
    return list_values(values) if values.numel() <= _MOST_VALUES else {}


def list_values(tensor: torch.Tensor) -> dict:
    """{"list": […]}: every value, in row-major order."""
    return {"values": {"list": [_number(v) for v in tensor.flatten().tolist()]}}


def input_values(samples: list[torch.Tensor]) -> dict:
    """{"range": [low, high]} of whole numbers, or of floats that are never negative, as was seen.

    Negative whole numbers are apart, in "also": they are marks, like -100 for labels to ignore.
    """
    values = torch.cat([sample.detach().flatten().cpu() for sample in samples])
    if values.numel() == 0 or values.dtype == torch.bool or values.is_complex():
        return {}
    if values.dtype.is_floating_point:
        values = values.double()
        if not bool((values.isfinite() & (values >= 0)).all()):
            return {}
        low, high = values.min().item(), values.max().item()
        # A share, a weight, a pixel: what lies within 0 to 1 may be all of it.
        return {"values": {"range": [0.0, 1.0] if high <= 1 else [low, high]}}
    hint: dict = {}
    ordinary = values[values >= 0]
    if ordinary.numel():
        hint["range"] = [int(ordinary.min()), int(ordinary.max())]
    marks = sorted(set(values[values < 0].tolist()))
    if marks:
        hint["also"] = marks[:16]
    return {"values": hint}


def _number(value):
    """JSON has no infinities: they are written as in arguments."""
    if isinstance(value, float) and not math.isfinite(value):
        return ":nan" if math.isnan(value) else (":inf" if value > 0 else ":-inf")
    return value
