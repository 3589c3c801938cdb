"""Exported steps that are kept: one file a step, in the folder of plans.

A file is read again only if it is whole and of the same key (key.py); otherwise the step is
exported and the file replaced. Processes of one host that ask for the same step wait for the first.
"""

import hashlib
import io
import json
import os
import re
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path

import safetensors
import safetensors.torch
import torch

from heterog.base.cache_files import (
    MOST_ENTRY_BYTES,
    keep,
    locked,
    make_cache_folder,
    open_entry,
    stream_digest,
    users_folder,
)
from heterog.base.errors import HeterogError
from heterog.base.progress import phase, say_once
from heterog.base.reading import MOST_GRAPH_BYTES, inflated, parse_json
from heterog.base.tensor_file import packed
from heterog.base.values import as_object, as_string
from heterog.export.optimizer.state_form import StateForm, form_from_json, form_to_json
from heterog.export.state.python_state import Kept

_MARK = b"heterog-export 2 "
_HEAD = re.compile(_MARK + rb"([0-9a-f]{64}) ([0-9]{12})\n")
_HEAD_BYTES = len(_MARK) + 64 + 1 + 12 + 1
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
    return make_cache_folder(users_folder() if given is True else given)


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
    if len(data) <= MOST_ENTRY_BYTES and _same(_unpack(io.BytesIO(data), len(data), key), stored):
        try:
            keep(path, data)
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
    """A line with the digest of all that comes behind it, and the size of the first part; then the
    step as JSON, compressed, and its constants, which are not: they are as large as they look."""
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
    step = zlib.compress(text, _LEVEL)
    body = step + (packed(stored.constants, {}, checksum=False) if stored.constants else b"")
    return _MARK + f"{hashlib.sha256(body).hexdigest()} {len(step):012d}\n".encode() + body


def _read(path: Path, key: str) -> Stored | None:
    """None: there is no such file, or it is damaged, or of something else, or somebody else's."""
    with open_entry(path) as found:
        return None if found is None else _unpack(*found, key)


def _unpack(file, size: int, key: str) -> Stored | None:
    """`size`: of all of the file."""
    head = _HEAD.fullmatch(file.read(_HEAD_BYTES))
    if head is None or stream_digest(file).encode() != head[1]:
        return None
    file.seek(_HEAD_BYTES)
    try:
        # No more than is there, whatever the line says.
        step = file.read(min(int(head[2]), size))
        text = inflated(step, "export", MOST_GRAPH_BYTES)
        found = as_object(parse_json(text, "export", python=True), "export")
        if found["key"] != key:
            return None
        constants = safetensors.torch.load(file.read(size)) if found["constants"] else {}
        forms = [form_from_json(form) for form in found["forms"]]
        return Stored(
            as_object(found["graph"], "graph"),
            as_string(found["checked"], "checked"),
            {name: constants[name] for name in found["constants"]},
            found["untrained"],
            {name: forms[place] for name, place in found["form_of"].items()},
            found["momentum"],
            Kept(**found["python"]),
        )
    except (HeterogError, ValueError, LookupError, TypeError, AttributeError, safetensors.SafetensorError):
        return None
