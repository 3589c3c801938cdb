"""Files and texts that others wrote, read within bounds: of size, of depth, of what they unfold to.

No other module opens such a file or parses such a text (python/tests/base/test_reading.py looks). What
cannot be read is an InputError of one line that names the file.

    read_bytes, read_text    a file, whole
    read_json, parse_json    JSON as src/base/json_reader.h reads it
    parse_xml                an element tree
    inflated                 zlib and gzip
"""

import hashlib
import json
import math
import os
import re
import stat
import zlib
from typing import Any
from xml.etree import ElementTree

from heterog.base.errors import InputError
from heterog.base.values import shown

# What people and programs give us is thousands of times smaller; with its values it stays under a
# gigabyte.
MOST_BYTES = 32 << 20
# The largest graph of the zoo has 6 MB; as kMaxFileBytes of src/base/file.h.
MOST_GRAPH_BYTES = 128 << 20
MOST_WRITTEN_BYTES = 1 << 30  # what the library has just written for us
MOST_OUTPUT_BYTES = 8 << 20  # what a command has printed of a machine
_LONGEST_LINE = 4096  # of it
MOST_VALUES = 1 << 22  # of a JSON text: some hundred bytes of memory each
MOST_ELEMENTS = 1 << 17  # of an XML text: a machine has hundreds
DEEPEST = 100
# As kMaxGzipRatio and kFreeRatioBytes there.
_MOST_RATIO = 200
_FREE_RATIO_BYTES = 4 << 20
_MOST_PIECES = 64  # that a gzip file was put together from


def read_bytes(path, most: int = MOST_BYTES) -> bytes:
    """All of a file or a pipe, if it is no more than `most` bytes."""
    name = _name(path)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            status = os.fstat(handle)
            if stat.S_ISDIR(status.st_mode):
                raise InputError(f"{name}: is a folder, expected a file")
            # Before memory is taken: a file may declare any size.
            size = status.st_size if stat.S_ISREG(status.st_mode) else 0
            with open(handle, "rb", closefd=False) as file:
                found = file.read(most + 1) if size <= most else b""
        finally:
            os.close(handle)
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}") from error
    except ValueError as error:  # a null character in its name
        raise InputError(f"{name}: {error}") from error
    if size > most or len(found) > most:
        raise InputError(f"{name}: holds more than {most} bytes, the most that is read of such a file")
    return found


def read_text(path, most: int = MOST_BYTES, undecodable: str = "strict") -> str:
    """In UTF-8. `undecodable`: "replace" where it may hold what some program printed."""
    try:
        return read_bytes(path, most).decode("utf-8", undecodable)
    except UnicodeDecodeError as error:
        raise InputError(f"{_name(path)}: is no text in UTF-8 (byte {error.start})") from error


def file_digest(path) -> bytes:
    """SHA-256 of a file of any size."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise InputError(f"{_name(path)}: {error.strerror}") from error


def lines_of(text: str) -> list[str]:
    """Of what a command has printed. What is longer than any line of it is cut off, so that no search
    in a line takes the square of a file's size."""
    return [line[:_LONGEST_LINE] for line in text.splitlines()]


def read_json(path, most: int = MOST_BYTES, deepest: int = DEEPEST, *, comments: bool = False) -> Any:
    return parse_json(read_bytes(path, most), _name(path), deepest, comments=comments)


def parse_json(
    text: str | bytes, source, deepest: int = DEEPEST, *, comments: bool = False, python: bool = False
) -> Any:
    """The value. Refused, beside what is no JSON: keys that occur twice in an object, numbers beyond
    those of 64 bits, halves of surrogate pairs, deep nesting, and more values than memory is for.
    Whole numbers beyond 64 bits are floating-point ones, as they are to the C++ reader.

    comments     // and /* */ may stand between values
    python       as Python's json writes it: NaN, Infinity and -Infinity are numbers, and whole numbers
                 are exact at any size
    """
    name = _name(source)
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    try:
        if comments:
            data = _COMMENTED.sub(_blank, data)
        _check_bounds(data, name, deepest)
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_object,
            parse_int=int if python else _int,
            parse_float=_float,
            parse_constant=None if python else _constant,
        )
        if _SURROGATE.search(data):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeError as error:
        raise InputError(f"{name}: is no text in UTF-8 ({_reason(error)})") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name}: no JSON: {_reason(error)}") from error
    return value


# Each always matches where it begins, so that no text is gone through twice.
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
_STRINGS = re.compile(_STRING, re.DOTALL)
_COMMENTED = re.compile(_STRING + rb"|//[^\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/)?", re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def _blank(found: re.Match) -> bytes:
    """A comment becomes spaces, so that errors are where the file has them."""
    text = found.group()
    return text if text[:1] == b'"' else re.sub(rb"[^\n]", b" ", text)


def _check_bounds(data: bytes, name: str, deepest: int) -> None:
    """Before anything is made of it: each value but the first comes after one of [ { , :"""
    bare = _STRINGS.sub(b"", data)
    if sum(map(bare.count, (b"[", b"{", b",", b":"))) > MOST_VALUES:
        raise InputError(f"{name}: holds more than {MOST_VALUES} values")
    depth = 0
    for bracket in bare.translate(None, _NO_BRACKETS):
        depth += _STEPS[bracket]
        if depth > deepest:
            raise InputError(f"{name}: nested more than {deepest} levels deep")
        if depth <= 0:
            break  # the value is over


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {shown(twice)} occurs twice in one object")
    return made


def _int(digits: str) -> int | float:
    if len(digits) <= 20:
        value = int(digits)
        if -(2**63) <= value < 2**64:
            return value
    return _float(digits)


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"the number {shown(digits, 40)} is out of range")
    return value


def _constant(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


# ---- XML ----


def parse_xml(text: str, source, root: str, made_by: str) -> ElementTree.Element:
    """The element `root`, of which `text` may have something before it that a shell has printed."""
    name = _name(source)
    start = max(text.find(f"<{root}"), 0)
    if "<!ENTITY" in text:  # what unfolds, or leads to other files
        raise InputError(f"{name}: it defines entities, which {made_by} does not")
    try:
        parser = ElementTree.XMLParser(target=_BoundedTree())
        parser.feed(text[start:].strip())
        found = parser.close()
    except (ElementTree.ParseError, ValueError) as error:
        raise InputError(f"{name}: no XML: {_reason(error)}; give what {made_by}") from error
    if found.tag != root:
        raise InputError(f"{name}: <{shown(found.tag)[1:-1]}> is not <{root}>; give what {made_by}")
    return found


class _BoundedTree(ElementTree.TreeBuilder):
    """What reads the tree may go down it by recursion."""

    def __init__(self):
        super().__init__()
        self.depth = self.count = 0

    def start(self, tag, attributes):
        self.depth += 1
        self.count += 1
        if self.depth > DEEPEST or self.count > MOST_ELEMENTS:
            raise ValueError(f"more than {DEEPEST} levels or {MOST_ELEMENTS} elements")
        return super().start(tag, attributes)

    def end(self, tag):
        self.depth -= 1
        return super().end(tag)


# ---- what is compressed ----


def inflated(data: bytes, source, most: int, gzip: bool = False) -> bytes:
    """What zlib, or gzip in one or several pieces, has compressed: no more than `most` bytes of it,
    nor, once it is large, so many times its size as no file of ours unfolds to."""
    name = _name(source)
    most = min(most, max(_FREE_RATIO_BYTES, _MOST_RATIO * len(data)))
    made = bytearray()
    try:
        for _ in range(_MOST_PIECES):
            inflater = zlib.decompressobj(31 if gzip else 15)
            made += inflater.decompress(data, most + 1 - len(made))
            if len(made) > most:
                raise InputError(f"{name}: unfolds to more than {most} bytes")
            if not inflater.eof:
                raise InputError(f"{name}: ends early, as if cut off")
            data = inflater.unused_data
            if not data.strip(b"\0"):  # padding, as on tapes
                return bytes(made)
            if not gzip:
                break
    except zlib.error as error:
        raise InputError(f"{name}: damaged: {_reason(error)}") from error
    raise InputError(f"{name}: damaged: {len(data)} bytes follow its end")


def inflated_if_gzip(data: bytes, source, most: int = MOST_GRAPH_BYTES) -> bytes:
    return inflated(data, source, most, gzip=True) if data[:2] == b"\x1f\x8b" else data


# ---- messages ----


def _name(source) -> str:
    """A path, or what else a text is from, as one bounded line."""
    text = os.fsdecode(source) if isinstance(source, (str, bytes, os.PathLike)) else str(source)
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= 400 else f"{text[:400]}…"


def _reason(error: Exception) -> str:
    text = str(error) if not isinstance(error, RecursionError) else "nested too deep"
    return text if len(text) <= 300 else f"{text[:300]}…"

