"""Every text that the program and the package can print, as their sources have it."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
HOLE = "…"  # where a value stands

_LITERAL = r'"(?:[^"\\\n]|\\.)*"'


def of_cpp(text: str) -> list[str]:
    """String literals, those side by side as one, with holes for {}."""
    text = re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)
    found = []
    for run in re.finditer(rf"{_LITERAL}(?:\s*{_LITERAL})*", text):
        joined = "".join(part[1:-1] for part in re.findall(_LITERAL, run[0]))
        joined = joined.replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\")
        found.append(re.sub(r"\{[^{}]*\}", HOLE, joined.replace("{{", "{").replace("}}", "}")))
    return found


def of_python(text: str) -> list[str]:
    found = []
    tree = ast.parse(text)
    told_to_readers = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) in told_to_readers:  # a docstring
                continue
            found.append(node.value)
        elif isinstance(node, ast.JoinedStr):
            found.append("".join(p.value if isinstance(p, ast.Constant) else HOLE for p in node.values))
    return found


def all_messages() -> list[str]:
    found = []
    for path in sorted((ROOT / "src").rglob("*.cc")) + sorted((ROOT / "src").rglob("*.h")):
        found += of_cpp(path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / "python/heterog").rglob("*.py")) + [ROOT / "python/heterog_command.py"]:
        found += of_python(path.read_text(encoding="utf-8"))
    return [re.sub(r"\s+", " ", one) for one in found if len(one) > 8]


def is_said(message: str, messages: list[str]) -> bool:
    """Whether one text of the sources has all that this one says, in its order; "…" stands for
    anything."""
    parts = [re.escape(part) for part in re.sub(r"\s+", " ", message).split(HOLE)]
    pattern = re.compile(".*".join(parts))
    return any(pattern.search(one) for one in messages)
