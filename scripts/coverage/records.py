"""The file of JSON lines that a run of coverage appends to, one record an architecture."""

import json
from pathlib import Path


def read(path: Path) -> dict[str, dict]:
    """By name; of several lines of one name the last counts. A line that a kill cut short is none."""
    found: dict[str, dict] = {}
    if path.exists():
        for line in path.read_text().splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            found.pop(record["name"], None)
            found[record["name"]] = record
    return found


def append(path: Path, record: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")
