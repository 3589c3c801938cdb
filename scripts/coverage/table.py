"""The Markdown of coverage: counts by library and kind, then who is refused or differs, and why."""

import re
from collections import Counter, defaultdict

# A reason without what is of one model alone, so that models with the same one stand together.
_OWN = [
    (r"^\S+\.py:\d+( in [^:]*)?: ", ""),
    (r"\bmodule [\w.]+( \(\w+\))?", "module …"),
    (r"\[[^\]]*\]", "[…]"),
    (r"'[^']*'", "'…'"),
    (r"\b[\w.]*\d[\w.]*(e[+-]?\d+)?\b", "…"),
]


def markdown(records: list[dict]) -> str:
    lines = ["| library | kind | architectures | exported | compared with PyTorch | verified |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    groups: dict[tuple[str, str], list[dict]] = defaultdict(list)
    for record in records:
        groups[record["name"].partition("/")[0], record["kind"]].append(record)
    for (library, kind), members in groups.items():
        lines.append(_row(library, kind, members))
    lines.append(_row("all", "", records))
    refused = [r for r in records if not r["exported"]]
    differ = [r for r in records if r["exported"] and not r["verified"]]
    lines += _reasons("Not exported", refused, "refusal")
    lines += _reasons("Exported, not verified", differ, "reason")
    again = [r for r in refused if r.get("without_dropout", {}).get("exported")]
    if again:
        verified = sum(r["without_dropout"]["verified"] for r in again)
        lines += ["", f"With `dropout=False`, {len(again)} of those that are not exported are, and "
                  f"{verified} of them are verified."]  # fmt: skip
    return "\n".join(lines) + "\n"


def _row(library: str, kind: str, members: list[dict]) -> str:
    counts = [len(members), sum(r["exported"] for r in members),
              sum(compared(r) for r in members), sum(r["verified"] for r in members)]  # fmt: skip
    return "| " + " | ".join([library, kind, *map(str, counts)]) + " |"


def compared(record: dict) -> bool:
    """Whether the exporter held the graph against eager PyTorch before it handed it out."""
    return record["exported"] and record["checked"].startswith("equal")


def _reasons(heading: str, records: list[dict], field: str) -> list[str]:
    if not records:
        return []
    causes: dict[str, list[dict]] = defaultdict(list)
    for record in records:
        causes[cause(record[field])].append(record)
    order = Counter({text: len(members) for text, members in causes.items()}).most_common()
    lines = ["", f"{heading} ({len(records)}):", "", "| architectures | the line, of the first |",
             "|---|---|"]  # fmt: skip
    for text, _ in order:
        members = causes[text]
        names = ", ".join(r["name"] for r in members)
        line = members[0][field].replace("|", "\\|")
        lines.append(f"| {names} | {line} |")
    return lines


def cause(line: str) -> str:
    for pattern, put in _OWN:
        line = re.sub(pattern, put, line)
    return line[:100]
