"""Values that others wrote: each is checked to be of its kind and within bounds, or refused in a
line that says where it stands, what is expected there and what was found.

The names and the bounds are those of src/base/json_reader.h and src/base/names.h.
"""

import math
import re
import sys
from typing import Any

from heterog.base.errors import HeterogError, InputError

MOST_EXACT = 2.0**53  # whole numbers up to here are exact as floating-point numbers
_LONGEST_NUMBER = 40  # characters


def as_string(value, where: str) -> str:
    if not isinstance(value, str):
        raise _expected("a string", value, where)
    return value


def as_bool(value, where: str) -> bool:
    if not isinstance(value, bool):
        raise _expected("true or false", value, where)
    return value


def as_list(value, where: str) -> list:
    if not isinstance(value, list):
        raise _expected("a list", value, where)
    return value


def as_object(value, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _expected("an object", value, where)
    return value


def as_int(value, where: str, least: int, most: int) -> int:
    """16e9 is a whole number to whoever wrote it."""
    found = value
    if isinstance(found, float) and abs(found) <= MOST_EXACT and found.is_integer():
        found = int(found)
    if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
        raise _expected(f"a whole number from {least} to {most}", value, where)
    return found


def as_number(value, where: str, least: float = -math.inf, most: float = math.inf) -> float:
    """Finite, least ≤ x ≤ most."""
    plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    # Python's integers have no end; those that no float holds are no figures.
    found = float(value) if plain and abs(value) <= sys.float_info.max else math.nan
    if not (math.isfinite(found) and least <= found <= most):
        raise _expected(_range(least, most), value, where)
    return found


def required(fields: dict, key: str, where: str) -> Any:
    if key not in fields:
        raise InputError(f'{where}: the field "{key}" is missing')
    return fields[key]


def check_format(fields: dict, where: str, name: str, version: int) -> None:
    """{"format": name, "version": version}."""
    for key, wanted in (("format", name), ("version", version)):
        found = required(fields, key, where)
        if found != wanted or isinstance(found, bool):
            raise _expected(shown(wanted), found, f"{where}: {key}")


# ---- numbers in texts, as programs print them ----


def whole_in(text: str, most: int) -> int | None:
    """The whole number from 0 to `most` that this text is, of ASCII digits alone; None where it is
    none: Python's own int() takes digits of all scripts, and refuses 5,000 of them with an error."""
    if not re.fullmatch(r"[0-9]{1,19}", text):
        return None
    return int(text) if int(text) <= most else None


def number_in(text: str) -> float | None:
    """The finite number that this text is, in ASCII; None where it is none."""
    if len(text) > _LONGEST_NUMBER:
        return None
    if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text):
        return None
    found = float(text)
    return found if math.isfinite(found) else None


# ---- names ----

_PART = r"(?!-)[A-Za-z0-9._:%\[\]-]+"
_HOST = re.compile(rf"({_PART}@)?{_PART}")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def is_host_name(text: str) -> bool:
    """[USER@]NAME: see src/base/names.h."""
    return len(text) <= 255 and _HOST.fullmatch(text) is not None


def is_file_name(text: str) -> bool:
    """What becomes a file's name, or a part of one: see src/base/names.h."""
    if not text or text[0] == "." or _CONTROLS.search(text) or "/" in text or "\\" in text:
        return False
    return len(text.encode()) <= 100


def host_name(text: str, where: str) -> str:
    if not is_host_name(text):
        raise InputError(
            f"{where}: {shown(text)} is no name of a host: [USER@]NAME of letters, digits and "
            "._:%[]-, no part of which begins with -"
        )
    return text


# ---- what a message says was found ----


def shown(value, most: int = 80) -> str:
    """One printable line of bounded length, whatever it is."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        # Of longer ones Python makes no text.
        return str(value) if abs(value) < 10**40 else "a number of over 40 digits"
    text = repr(value[: most + 1] if isinstance(value, str) else value)
    return text if len(text) <= most + 2 else f"{text[:most]}…"


def _range(least: float, most: float) -> str:
    if most == math.inf:
        return "a number" if least == -math.inf else f"a number of at least {least:g}"
    return f"a number from {least:g} to {most:g}"


def _expected(what: str, found, where: str) -> HeterogError:
    return InputError(f"{where}: expected {what}, found {shown(found)}")
