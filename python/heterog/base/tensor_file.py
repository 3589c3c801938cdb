"""Files of named tensors, as safetensors defines them, with a checksum of all their bytes.

Written here, without numpy, which the safetensors library wants for it; read by that library. The
checksum is XXH3 of the file with its own digits as zeros (docs/formats.md).
"""

import ctypes
import json
import mmap
import os
import re

import safetensors
import torch

from heterog.base.errors import HeterogError
from heterog.base.native import xxh3

_TYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
_KEY = "checksum"
_MARK = b'"checksum":"xxh3:'
_DIGITS = 16


def packed(
    tensors: dict[str, torch.Tensor], metadata: dict[str, str], checksum: bool = True
) -> bytearray:
    """The bytes of a file. Tensors of one memory are written once for each of their names. The
    checksum wants the C library."""
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # The largest elements first: every tensor then begins at a multiple of its element's size.
    order = sorted(whole, key=lambda name: (-whole[name].element_size(), name))
    room = {_KEY: f"xxh3:{0:0{_DIGITS}x}"} if checksum else {}
    header: dict = {"__metadata__": metadata | room}
    end = 0
    for name in order:
        tensor = whole[name]
        if tensor.dtype not in _TYPES:
            raise HeterogError(f"'{name}': tensors of {tensor.dtype} cannot be written to a file")
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _TYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    made = bytearray(len(text).to_bytes(8, "little") + text)
    for name in order:
        tensor = whole[name]
        made += ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())
    if checksum:
        at = made.index(_MARK) + len(_MARK)
        made[at : at + _DIGITS] = f"{xxh3(made):0{_DIGITS}x}".encode()
    return made


def read(path: str) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Tensors and metadata of a file whose checksum, if it has one, is right."""
    if not os.path.isfile(path):
        raise HeterogError(f"{path}: no such file")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if _KEY in metadata:
                _check(path, metadata[_KEY])
            return {name: file.get_tensor(name) for name in file.keys()}, metadata
    except (safetensors.SafetensorError, OSError, MemoryError) as error:
        why = " ".join(str(error).split())[:200]  # it quotes what it found, however long
        raise HeterogError(f"{path}: no whole safetensors file: {why}") from error


def _check(path: str, given: str) -> None:
    if not re.fullmatch(rf"xxh3:[0-9a-f]{{{_DIGITS}}}", given):
        raise HeterogError(
            f"{path}: checksum: {given[:40]!r} is none; it is 'xxh3:' and {_DIGITS} hexadecimal digits"
        )
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as view:
        header = 8 + int.from_bytes(view[:8], "little")
        at = view.find(_MARK, 8, header)
        if at < 0:
            raise HeterogError(f"{path}: checksum: it is not written as docs/formats.md says")
        at += len(_MARK)
        view[at : at + _DIGITS] = b"0" * _DIGITS
        found = f"xxh3:{xxh3(view):0{_DIGITS}x}"
    if found != given:
        raise HeterogError(
            f"{path}: checksum: the file's bytes give {found}, its metadata says {given}: it is "
            "damaged, or was changed without a new checksum"
        )
