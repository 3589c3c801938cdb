"""The architectures of the table of coverage, by name. Importing a table imports its library."""

import importlib

from entry import Entry

LIBRARIES = ("torchvision", "timm", "transformers")


def library_of(name: str) -> str:
    library = name.partition("/")[0]
    if library not in LIBRARIES:
        raise KeyError(name)
    return library


def entries_of(libraries) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    for library in libraries:
        for entry in importlib.import_module(f"{library}_models").entries():
            if entry.name in found:
                raise ValueError(f"{entry.name} stands twice in the tables of coverage")
            found[entry.name] = entry
    return found


def entry_named(name: str) -> Entry:
    return entries_of([library_of(name)])[name]
