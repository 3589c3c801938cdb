"""Exported steps that are kept: one file a step, in the folder of plans.

A file is read again only if it is whole and of the same key (export_key.py); otherwise the step is
exported and the file replaced. Processes of one host that ask for the same step wait for the first.
"""

import hashlib
import json
import os
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path

import safetensors
import safetensors.torch
import torch

from heterog.config import RunnerConfig
from heterog.errors import HeterogError
from heterog.files import locked, make_folder, replace_file
from heterog.progress import phase, say_once
from heterog.python_state import Kept
from heterog.state_form import StateForm, form_from_json, form_to_json
from heterog.tensor_file import packed

_MARK = b"heterog-export 1 "
_LEVEL = 1  # of compression: the packed graph beside it is the small one


@dataclass
class Stored:
    """What is kept of a step: all but the optimizer, which whoever asks has."""

    graph: dict
    checked: str
    constants: dict[str, torch.Tensor]
    untrained: list[str]
    forms: dict[str, StateForm]
    momentum: list | None  # what was decided by it: comparison, what with, and what it said
    python: Kept = field(default_factory=Kept)  # what a step leaves in Python's own state


def cache_folder(given) -> Path | None:
    """`given`: a folder; True: that of get_runner; None or False: nothing is kept."""
    if given is None or given is False:
        return None
    if given is not True and not isinstance(given, (str, os.PathLike)):
        raise HeterogError(f"cache: {given!r}; it is a folder, True or False")
    return make_folder(RunnerConfig().folder if given is True else given)


def stored_or_made(folder: Path, key: str, make) -> Stored:
    """What the cache has of this key; else what make() gives, which is then kept."""
    path = folder / f"export-{key[:32]}.bin"
    found = _read(path, key)
    if found is not None:
        return found
    phase("waits for another process, which exports the same")
    with locked(f"{path}.lock"):
        found = _read(path, key)
        if found is None:
            found = make()
            _write(path, key, found)
    return found


def _write(path: Path, key: str, stored: Stored) -> None:
    data = _pack(key, stored)
    # What does not come back as it was is not kept.
    if _same(_unpack(data, key), stored):
        try:
            replace_file(path, data)
        except HeterogError as error:
            say_once(f"the exported step is not kept: {error}")


def _same(one: Stored | None, other: Stored) -> bool:
    if one is None or one.constants.keys() != other.constants.keys():
        return False
    for name, value in one.constants.items():
        mine = other.constants[name]
        if (mine.dtype, mine.shape, mine.stride()) != (value.dtype, value.shape, value.stride()):
            return False
    plain = [(s.graph, s.checked, s.untrained, s.forms, s.momentum, s.python) for s in (one, other)]
    return repr(plain[0]) == repr(plain[1])


def _pack(key: str, stored: Stored) -> bytes:
    forms: dict[int, StateForm] = {id(form): form for form in stored.forms.values()}
    numbers = {number: place for place, number in enumerate(forms)}
    text = json.dumps(
        {
            "key": key,
            "graph": stored.graph,
            "checked": stored.checked,
            "constants": list(stored.constants),
            "untrained": stored.untrained,
            "forms": [form_to_json(form) for form in forms.values()],
            "form_of": {name: numbers[id(form)] for name, form in stored.forms.items()},
            "momentum": stored.momentum,
            "python": asdict(stored.python),
        }
    ).encode()
    tensors = packed(stored.constants, {}, checksum=False) if stored.constants else b""
    data = zlib.compress(len(text).to_bytes(8, "little") + text + tensors, _LEVEL)
    return _MARK + hashlib.sha256(data).hexdigest().encode() + b"\n" + data


def _read(path: Path, key: str) -> Stored | None:
    """None: there is no such file, or it is damaged, or of something else."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    return _unpack(data, key)


def _unpack(data: bytes, key: str) -> Stored | None:
    head, _, data = data.partition(b"\n")
    if head != _MARK + hashlib.sha256(data).hexdigest().encode():
        return None
    try:
        data = zlib.decompress(data)
        end = 8 + int.from_bytes(data[:8], "little")
        found = json.loads(data[8:end])
        if found["key"] != key:
            return None
        tensors = safetensors.torch.load(data[end:]) if found["constants"] else {}
        forms = [form_from_json(form) for form in found["forms"]]
        return Stored(
            found["graph"],
            found["checked"],
            {name: tensors[name] for name in found["constants"]},
            found["untrained"],
            {name: forms[place] for name, place in found["form_of"].items()},
            found["momentum"],
            Kept(**found["python"]),
        )
    except (zlib.error, ValueError, KeyError, TypeError, AttributeError, safetensors.SafetensorError):
        return None
