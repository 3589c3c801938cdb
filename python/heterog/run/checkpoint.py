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

import torch

from heterog.base import tensor_file
from heterog.base.errors import HeterogError
from heterog.base.files import make_folder, replace_file
from heterog.base.given import FilePath
from heterog.base.reading import parse_json
from heterog.base.values import shown, whole_in

_FORMAT = "heterog-checkpoint"
_VERSION = "2"  # 1 had no checksums
_WITH_TENSORS = "3"  # in `extra`, which readers of 2 know nothing of
_MOST_PARAMETERS = 10**9
_TENSOR = "__tensor__"  # in the JSON of `extra`: the number of the tensor that stands there


@dataclass
class Checkpoint:
    """All that training goes on from."""

    model: dict[str, torch.Tensor]  # in the names of state_dict()
    optimizer: dict  # in the form of torch.optim
    steps: int  # done
    others: dict[str, torch.Tensor] = field(default_factory=dict)  # kept, and in no state_dict
    extra: dict = field(default_factory=dict)  # the caller's own: JSON, and tensors within


def save_checkpoint(path: FilePath, checkpoint: Checkpoint) -> None:
    """Replaces what `path` holds, whole or not at all."""
    path = os.fspath(path)
    make_folder(os.path.dirname(path) or ".")
    second, version = _second_file(checkpoint)
    name = f"{os.path.basename(path)}.{hashlib.sha256(second).hexdigest()[:12]}.state"
    metadata = {"format": "pt", _FORMAT: version, "steps": str(checkpoint.steps), "state": name}
    first = tensor_file.packed(checkpoint.model, metadata)
    replace_file(os.path.join(os.path.dirname(path), name), second)
    replace_file(path, first)
    for old in glob.glob(f"{glob.escape(path)}.{'[0-9a-f]' * 12}.state"):
        if os.path.basename(old) != name:
            with contextlib.suppress(OSError):
                os.unlink(old)


def load_checkpoint(path: FilePath) -> Checkpoint:
    """What save_checkpoint wrote, once its bytes are those that were written."""
    if not isinstance(path, (str, os.PathLike)):
        raise HeterogError(f"checkpoint: {path!r} is no path")
    path = os.fspath(path)
    model, metadata = tensor_file.read(path)
    version = metadata.get(_FORMAT)
    if version is None:
        raise HeterogError(
            f"{path}: no checkpoint of a runner; for weights alone, read it with "
            "safetensors.torch.load_file and give them to load_state_dict()"
        )
    if version not in ("1", _VERSION, _WITH_TENSORS):
        raise HeterogError(
            f"{path}: version {version[:20]!r}; this package reads 1 to {_WITH_TENSORS}"
        )
    second = os.path.join(os.path.dirname(path), _state_name(path, metadata))
    tensors, facts = tensor_file.read(second)
    if version != "1":
        for file, found in ((path, metadata), (second, facts)):
            if "checksum" not in found:
                raise HeterogError(f"{file}: no checksum in its metadata: it is damaged")
    of_extra = {n: tensors.pop(n) for n in list(tensors) if n.startswith("extra/")}
    state, others = _sorted_by_kind(second, tensors)
    _add_numbers(second, facts, state)
    groups = _from_json(second, facts, "param_groups")
    if not isinstance(groups, list) or not all(isinstance(group, dict) for group in groups):
        raise HeterogError(f"{second}: param_groups is no list of groups: it is damaged")
    extra = _with_tensors(second, _from_json(second, facts, "extra"), of_extra)
    optimizer = {"state": state, "param_groups": _lists_to_tuples(groups)}
    return Checkpoint(model, optimizer, _steps(path, metadata), others, extra)


def _state_name(path: str, metadata: dict) -> str:
    """Of a file beside the checkpoint, and nowhere else."""
    name = metadata.get("state", "")
    if not name.endswith(".state") or os.path.basename(name) != name:
        raise HeterogError(f"{path}: state {name[:80]!r} names no file beside it: it is damaged")
    return name


def _steps(path: str, metadata: dict) -> int:
    text = metadata.get("steps", "")
    steps = whole_in(text, 10**18)
    if steps is None:
        raise HeterogError(f"{path}: steps {shown(text, 40)} is no number of steps: it is damaged")
    return steps


def _from_json(path: str, facts: dict, key: str):
    try:
        return parse_json(facts[key], key, python=True)
    except (KeyError, HeterogError) as error:
        raise HeterogError(f"{path}: {key} is missing or no JSON: it is damaged") from error


def _sorted_by_kind(path: str, tensors: dict) -> tuple[dict, dict]:
    """The optimizer's state by the number of its parameter, and the other tensors by name."""
    state: dict = {}
    others = {}
    for name, tensor in tensors.items():
        kind, _, rest = name.partition("/")
        number, _, key = rest.partition("/")
        if kind == "others" and rest:
            others[rest] = tensor
        elif kind == "optimizer" and key and (place := whole_in(number, _MOST_PARAMETERS)) is not None:
            state.setdefault(place, {})[key] = tensor
        else:
            raise HeterogError(f"{path}: a tensor is called {name[:80]!r}: it is damaged")
    return state, others


def _add_numbers(path: str, facts: dict, state: dict) -> None:
    """What the optimizer keeps of its parameters beside tensors: counts, flags."""
    if "numbers" not in facts:
        return
    numbers = _from_json(path, facts, "numbers")
    if not isinstance(numbers, dict) or not all(
        whole_in(key, _MOST_PARAMETERS) is not None and isinstance(entry, dict)
        for key, entry in numbers.items()
    ):
        raise HeterogError(f"{path}: numbers is no dict of the optimizer's numbers: it is damaged")
    for number, entry in numbers.items():
        state.setdefault(int(number), {}).update(entry)


def _without_tensors(value, found: dict):
    """`extra` as JSON, in which a tensor is a number; the tensors go to `found`."""
    if isinstance(value, torch.Tensor):
        name = f"extra/{len(found)}"
        found[name] = value.detach().cpu()
        return {_TENSOR: name}
    if isinstance(value, dict):
        if _TENSOR in value:
            raise HeterogError(f"extra: a dict has the key {_TENSOR!r}, by which tensors are marked")
        return {key: _without_tensors(entry, found) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_tensors(entry, found) for entry in value]
    return value


def _with_tensors(path: str, value, found: dict):
    if isinstance(value, dict):
        if _TENSOR in value:
            name = value[_TENSOR]
            if len(value) != 1 or not isinstance(name, str) or name not in found:
                raise HeterogError(f"{path}: extra names a tensor that is not there: it is damaged")
            return found[name]
        return {key: _with_tensors(path, entry, found) for key, entry in value.items()}
    if isinstance(value, list):
        return [_with_tensors(path, entry, found) for entry in value]
    return value


def _second_file(checkpoint: Checkpoint) -> tuple[bytearray, str]:
    """The file, and the version of both."""
    tensors = {f"others/{name}": tensor for name, tensor in checkpoint.others.items()}
    numbers: dict = {}
    for number, entry in checkpoint.optimizer["state"].items():
        for key, value in entry.items():
            if isinstance(value, torch.Tensor):
                tensors[f"optimizer/{number}/{key}"] = value
            else:
                numbers.setdefault(str(number), {})[key] = value
    of_extra: dict[str, torch.Tensor] = {}
    try:
        extra = json.dumps(_without_tensors(checkpoint.extra, of_extra))
    except (TypeError, ValueError, RecursionError) as error:
        raise HeterogError(f"extra: {error}; it is kept as JSON, and tensors within") from error
    groups = json.dumps(checkpoint.optimizer["param_groups"], default=_number)
    facts = {"param_groups": groups, "extra": extra}
    if numbers:
        facts["numbers"] = json.dumps(numbers)
    version = _WITH_TENSORS if of_extra else _VERSION
    return tensor_file.packed(tensors | of_extra, facts), version


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
