"""Says for which Linux a wheel's libraries are, and makes them be for an older one where that is right.

    .venv/bin/python scripts/manylinux.py FILE …     what each needs that manylinux_2_34 has not

manylinux_2_34 is the systems with glibc 2.34 and the libstdc++ of GCC 11, RHEL 9 and Ubuntu 22.04 among
them (PEP 600). GCC 12 gave one function that we call, and spdlog, a new version, and kept the old: it
waits without the promise to throw nothing. `lower` asks for the old one.
"""

import re
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

TAG = "manylinux_2_34_x86_64"
MOST = {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13), "GCC": (7, 0, 0)}
# The version that is asked for → the one that has the same functions, and these functions.
LOWERED = {"GLIBCXX_3.4.30": ("GLIBCXX_3.4.11", {"_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE"})}
_VERNEED, _VERSYM, _DYNSYM = 0x6FFFFFFE, 0x6FFFFFFF, 11


@dataclass
class Needed:
    """A version that a file asks of a library."""

    name: str
    at: int  # of its Elf64_Vernaux in the file
    symbols: set[str]


@dataclass
class Elf:
    """The tables of a 64-bit ELF file in which versions of symbols are asked for."""

    data: bytes
    needed: list[Needed]
    names: tuple[int, int]  # where the names begin and end

    def text(self, offset: int) -> str:
        start = self.names[0] + offset
        return self.data[start : self.data.index(b"\0", start)].decode()


def read_elf(path: Path) -> Elf:
    data = path.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise SystemExit(f"{path}: no 64-bit ELF file of little-endian bytes")
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    sections = {}
    for number in range(count):
        _, kind, _, _, offset, length, link, info = struct.unpack_from("<IIQQQQII", data, table + number * size)
        sections[kind] = (offset, length, link, info)
    if _VERNEED not in sections:
        return Elf(data, [], (0, 0))
    at, _, link, entries = sections[_VERNEED]
    start, length = struct.unpack_from("<QQ", data, table + link * size + 24)
    elf = Elf(data, [], (start, start + length))
    users = symbols_by_version(elf, sections)
    for _ in range(entries):
        _, versions, _, first, step = struct.unpack_from("<HHIII", data, at)
        place = at + first
        for _ in range(versions):
            _, _, number, name, further = struct.unpack_from("<IHHII", data, place)
            elf.needed.append(Needed(elf.text(name), place, users.get(number, set())))
            place += further
        at += step
    return elf


def symbols_by_version(elf: Elf, sections: dict) -> dict[int, set[str]]:
    (symbols, length, _, _), (versions, _, _, _) = sections[_DYNSYM], sections[_VERSYM]
    found: dict[int, set[str]] = {}
    for number in range(length // 24):
        (name,) = struct.unpack_from("<I", elf.data, symbols + 24 * number)
        (version,) = struct.unpack_from("<H", elf.data, versions + 2 * number)
        found.setdefault(version & 0x7FFF, set()).add(elf.text(name))
    return found


def can_be_lowered(need: Needed) -> bool:
    return need.name in LOWERED and need.symbols <= LOWERED[need.name][1]


def too_new(path: Path) -> list[str]:
    """What the file needs, once lowered, that the tag does not promise: "GLIBC_2.38 (strlcpy)"."""
    found = []
    for need in read_elf(path).needed:
        parts = re.fullmatch(r"([A-Z]+)_([\d.]+)", need.name)
        if parts is None or parts[1] not in MOST or can_be_lowered(need):
            continue
        if tuple(map(int, parts[2].split("."))) > MOST[parts[1]]:
            found.append(f"{need.name} ({', '.join(sorted(need.symbols))})")
    return found


def elf_hash(name: str) -> int:
    """As the dynamic linker compares names of versions."""
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ (high >> 24)) & ~high & 0xFFFFFFFF
    return value


def lower(path: Path) -> None:
    """Asks for older versions of functions, in place, where `LOWERED` has all that the file calls."""
    elf = read_elf(path)
    data = bytearray(elf.data)
    for need in elf.needed:
        if not can_be_lowered(need):
            continue
        older = LOWERED[need.name][0]
        place = elf.data.find(b"\0" + older.encode() + b"\0", *elf.names)
        if place < 0:
            raise SystemExit(f"{path}: needs {need.name} and has no {older} to take its name from")
        struct.pack_into("<I", data, need.at, elf_hash(older))
        struct.pack_into("<I", data, need.at + 8, place + 1 - elf.names[0])
    path.write_bytes(data)


def tag(files: list[Path]) -> str:
    """What the wheel of these is for; where they need more than manylinux_2_34, this machine's kind."""
    excess = [f"{file.name} needs {what}" for file in files for what in too_new(file)]
    if excess:
        print(f"warning: the wheel is for this system and newer ones alone: {excess[0]}", file=sys.stderr)
    return "linux_x86_64" if excess else TAG


if __name__ == "__main__":
    bad = [f"{name}: {what}" for name in sys.argv[1:] for what in too_new(Path(name))]
    print("\n".join(bad) or f"all within {TAG}")
    sys.exit(bool(bad))
