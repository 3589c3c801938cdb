"""Checkpoints: the model in a safetensors file that plain PyTorch loads, and all else beside it.

`F` holds the model's state_dict alone. Its metadata names a second file in the same folder, with
the optimizer's state, which is written first: F appears, whole, by one rename, and from then on the
pair is what load_checkpoint reads. A crash at any moment leaves the pair that was there before.
"""

import contextlib
import glob
import hashlib
import json
import os
from dataclasses import dataclass, field

import safetensors
import safetensors.torch
import torch

from heterog.errors import HeterogError
from heterog.files import make_folder, replace_file

_FORMAT = "heterog-checkpoint"
_VERSION = "1"


@dataclass
class Checkpoint:
    """All that training goes on from."""

    model: dict[str, torch.Tensor]  # in the names of state_dict()
    optimizer: dict  # in the form of torch.optim
    steps: int  # done
    others: dict[str, torch.Tensor] = field(default_factory=dict)  # kept, and in no state_dict
    extra: dict = field(default_factory=dict)  # the caller's own, as JSON


def save_checkpoint(path, checkpoint: Checkpoint) -> None:
    """Replaces what `path` holds, whole or not at all."""
    path = os.fspath(path)
    make_folder(os.path.dirname(path) or ".")
    second = _second_file(checkpoint)
    name = f"{os.path.basename(path)}.{hashlib.sha256(second).hexdigest()[:12]}.state"
    metadata = {"format": "pt", _FORMAT: _VERSION, "steps": str(checkpoint.steps), "state": name}
    first = safetensors.torch.save(_whole(checkpoint.model), metadata)
    replace_file(os.path.join(os.path.dirname(path), name), second)
    replace_file(path, first)
    for old in glob.glob(f"{glob.escape(path)}.{'[0-9a-f]' * 12}.state"):
        if os.path.basename(old) != name:
            with contextlib.suppress(OSError):
                os.unlink(old)


def load_checkpoint(path) -> Checkpoint:
    """What save_checkpoint wrote."""
    path = os.fspath(path)
    model, metadata = _read(path)
    if metadata.get(_FORMAT) != _VERSION:
        raise HeterogError(
            f"{path}: no checkpoint of a runner; for weights alone, read it with "
            "safetensors.torch.load_file and give them to load_state_dict()"
        )
    second = os.path.join(os.path.dirname(path), metadata["state"])
    tensors, facts = _read(second)
    state: dict = {}
    others = {}
    for name, tensor in tensors.items():
        kind, _, rest = name.partition("/")
        if kind == "others":
            others[rest] = tensor
        else:
            number, _, key = rest.partition("/")
            state.setdefault(int(number), {})[key] = tensor
    optimizer = {"state": state, "param_groups": _lists_to_tuples(json.loads(facts["param_groups"]))}
    return Checkpoint(model, optimizer, int(metadata["steps"]), others, json.loads(facts["extra"]))


def _second_file(checkpoint: Checkpoint) -> bytes:
    tensors = {f"others/{name}": tensor for name, tensor in checkpoint.others.items()}
    for number, entry in checkpoint.optimizer["state"].items():
        tensors |= {f"optimizer/{number}/{key}": tensor for key, tensor in entry.items()}
    try:
        extra = json.dumps(checkpoint.extra)
    except TypeError as error:
        raise HeterogError(f"extra: {error}; it is kept as JSON") from error
    groups = json.dumps(checkpoint.optimizer["param_groups"], default=_number)
    return safetensors.torch.save(_whole(tensors), {"param_groups": groups, "extra": extra})


def _number(value):
    """A learning rate may be a tensor."""
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        return value.item()
    raise TypeError(f"a {type(value).__name__} in the optimizer's groups")


def _lists_to_tuples(groups: list[dict]) -> list[dict]:
    """`betas`, which JSON has no tuples for."""
    return [
        {k: tuple(v) if isinstance(v, list) and k != "params" else v for k, v in group.items()}
        for group in groups
    ]


def _whole(tensors: dict) -> dict:
    """With memory of its own each: two names of one parameter are written twice, as state_dict()
    has them."""
    return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}


def _read(path: str) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    if not os.path.isfile(path):
        raise HeterogError(f"{path}: no such file")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}
    except (safetensors.SafetensorError, OSError) as error:
        raise HeterogError(f"{path}: no whole safetensors file: {error}") from error
