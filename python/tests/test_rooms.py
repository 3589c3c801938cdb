"""Rooms of the package: who imports whom is as the table in src/README.md says, and no two files import
each other, by whatever way round."""

import ast
import re
from pathlib import Path

import heterog

PACKAGE = Path(heterog.__file__).parent
TABLE = PACKAGE.parents[1] / "src/README.md"


def module_of(path: Path, package: Path) -> str:
    parts = path.relative_to(package).with_suffix("").parts
    return ".".join((package.name, *parts)).removesuffix(".__init__")


def imports_of(package: Path) -> dict[str, set[str]]:
    """The modules of the package that each of them imports, also inside functions and for type checkers."""
    paths = {module_of(path, package): path for path in sorted(package.rglob("*.py"))}
    found: dict[str, set[str]] = {}
    for module, path in paths.items():
        inside = module if path.name == "__init__.py" else module.rpartition(".")[0]
        names: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                above = inside.split(".")[: 1 - node.level or None] if node.level else []
                base = ".".join([*above, *([node.module] if node.module else [])])
                full = {alias.name: f"{base}.{alias.name}" for alias in node.names}
                names |= {full[name] if full[name] in paths else base for name in full}
        found[module] = (names & paths.keys()) - {module}
    return found


def rooms_of(imports: dict[str, set[str]], package: Path) -> dict[str, set[str]]:
    """Which other rooms each room imports; a room is a folder, by its path below the package."""

    def room(module: str) -> str:
        path = package.joinpath(*module.split(".")[1:])
        return str((path if path.is_dir() else path.parent).relative_to(package))

    found: dict[str, set[str]] = {room(module): set() for module in imports}
    for module, names in imports.items():
        found[room(module)] |= {room(name) for name in names} - {room(module)}
    return found


def table_of(text: str) -> dict[str, set[str]]:
    """Of the section on rooms: each room, with those that it may import, in the order of the rows."""
    section = text.partition("\n## Rooms of python/heterog\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+)` \|.*\|([^|]*)\|$", section, re.MULTILINE)
    return {room: set(re.findall(r"`([^`]+)`", imported)) for room, imported in rows}


def upward(table: dict[str, set[str]]) -> list[str]:
    """Imports of rooms that the table lists below the one that imports them, or nowhere."""
    order = list(table)
    return [
        f"{room} imports {other}"
        for place, (room, others) in enumerate(table.items())
        for other in sorted(others)
        if other not in order[:place]
    ]


def circle_of(imports: dict[str, set[str]]) -> list[str]:
    """Modules each of which imports the next, and the last the first; empty if there are none."""
    left = {module: set(names) for module, names in imports.items()}
    while ends := [module for module, names in left.items() if not names]:
        for module in ends:
            del left[module]
        for names in left.values():
            names -= set(ends)
    path = [min(left)] if left else []
    while path and path[-1] not in path[:-1]:
        path.append(min(left[path[-1]]))
    return path[path.index(path[-1]) : -1] if path else []


def test_rooms_import_what_the_table_says():
    table = table_of(TABLE.read_text(encoding="utf-8"))
    assert rooms_of(imports_of(PACKAGE), PACKAGE) == table, "as src/README.md has it"
    assert upward(table) == []


def test_no_file_is_in_a_circle():
    assert circle_of(imports_of(PACKAGE)) == []


def test_what_is_looked_for_is_found(tmp_path):
    package = tmp_path / "net"
    (package / "low/deep").mkdir(parents=True)
    (package / "high").mkdir()
    files = {
        "__init__.py": "import importlib\nfrom net.high import b\n",
        "low/a.py": "def late():\n    from net.high.b import value\n",
        "low/deep/__init__.py": "from .c import value\n",
        "low/deep/c.py": "from ..a import late\nimport os\n",
        "high/b.py": "import net.low.deep.c\nfrom net import absent\n",
    }
    for name, text in files.items():
        (package / name).write_text(text)
    imports = imports_of(package)
    assert imports == {
        "net": {"net.high.b"},
        "net.low.a": {"net.high.b"},
        "net.low.deep": {"net.low.deep.c"},
        "net.low.deep.c": {"net.low.a"},
        "net.high.b": {"net", "net.low.deep.c"},
    }
    rooms = rooms_of(imports, package)
    assert rooms == {".": {"high"}, "low": {"high"}, "low/deep": {"low"}, "high": {".", "low/deep"}}
    table = {"low": {"high"}, "low/deep": {"low"}, "high": {"low/deep", "lower"}}
    assert upward(table) == ["low imports high", "high imports lower"]
    assert circle_of(imports) == ["net", "net.high.b"]
    (package / "high/b.py").write_text("import net.low.deep.c\n")
    assert circle_of(imports_of(package)) == ["net.high.b", "net.low.deep.c", "net.low.a"]
    (package / "low/a.py").write_text("")
    assert circle_of(imports_of(package)) == []
