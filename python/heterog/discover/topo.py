"""Reads `nvidia-smi topo -m` and `nvidia-smi topo -p2p r`: how cards reach each other."""

import re

from heterog.base.errors import HeterogError
from heterog.base.reading import lines_of
from heterog.base.values import shown
from heterog.discover.facts import Topology

# Of drivers before 387: SOC is what SYS is now.
_OLD_NAMES = {"SOC": "SYS"}
_PATH = re.compile(r"X|NV[0-9]{1,3}|PIX|PXB|PHB|NODE|SYS|SOC")
_PEER = re.compile(r"X|OK|CNS|GNS|TNS|NS|DR|U")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")  # the header is underlined on a terminal


def read_topology(text: str, source: str = "nvidia-smi topo -m") -> Topology:
    rows = _matrix(text, _PATH, source)
    numa = _numa_column(text)
    paths = [[_OLD_NAMES.get(path, path) for path in row] for row in rows]
    return Topology(paths, [numa.get(i) for i in range(len(rows))])


def read_peers(text: str, source: str = "nvidia-smi topo -p2p r") -> list[list[str]]:
    return _matrix(text, _PEER, source)


def _lines(text: str) -> list[str]:
    return [_ESCAPES.sub("", line).strip() for line in lines_of(text)]


def _matrix(text: str, entry: re.Pattern, source: str) -> list[list[str]]:
    """Of cards alone: rows begin with "GPU3", and network cards stand to the right of all cards."""
    rows: dict[int, list[str]] = {}
    for line in _lines(text):
        words = line.split()
        row = re.fullmatch(r"GPU([0-9]{1,6})", words[0]) if words else None
        # The header begins as a row does; it goes on with the next card or with names of columns.
        if row is None or len(words) < 2 or words[1].startswith("GPU") or "Affinity" in line:
            continue
        if int(row.group(1)) != len(rows):
            raise HeterogError(
                f"{source}: row {words[0]} stands where GPU{len(rows)} should; give the whole output"
            )
        rows[len(rows)] = words[1:]
    count = len(rows)
    if not count:
        raise HeterogError(f"{source}: no row of a GPU; give what the command prints")
    matrix = [row[:count] for row in rows.values()]
    for i, row in enumerate(matrix):
        wrong = next((word for word in row if not entry.fullmatch(word)), None)
        if len(row) < count or wrong is not None:
            raise HeterogError(
                f"{source}: the row of GPU{i} has {shown(wrong, 40)} among its {count} entries; give the whole output"
                if wrong is not None
                else f"{source}: the row of GPU{i} has {len(row)} entries of {count}; give the whole output"
            )
        if row[i] != "X" or any(matrix[j][i] != row[j] for j in range(i)):
            raise HeterogError(
                f"{source}: the matrix is not that of {count} GPUs: the rows of GPU{i} and of others "
                "contradict each other; give the whole output"
            )
    return matrix


def _numa_column(text: str) -> dict[int, int]:
    """The column "NUMA Affinity", by where it stands: columns before it may be empty. Tabs part the
    columns where a terminal has not replaced them."""
    lines = _lines(text)
    found: dict[int, int] = {}
    header = next((line for line in lines if "NUMA Affinity" in line), None)
    if header is None:
        return found
    for line in lines:
        row = re.match(r"GPU([0-9]{1,6})\s+(?!GPU)", line)
        if not row:
            continue
        words = line.split()
        # The last columns are CPU Affinity, NUMA Affinity and, of newer drivers, GPU NUMA ID.
        if "GPU NUMA ID" in header:
            words = words[:-1]
        node = re.fullmatch(r"([0-9]{1,6})(?:-[0-9]{1,6})?", words[-1])
        # Two nodes, "0-1", are none; and a range of processors is no node.
        if node and "-" not in words[-1]:
            found[int(row.group(1))] = int(node.group(1))
    return found
