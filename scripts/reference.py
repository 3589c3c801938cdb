"""Writes docs/reference_command.md and docs/reference_python.md: what `heterog --help` and the
docstrings of the package say.

    .venv/bin/python scripts/reference.py [--check] [--program build/release/bin/heterog]

--check writes nothing, and fails where a page is not what would be written.
"""

import argparse
import dataclasses
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))

NOTE = "<!-- Written by scripts/reference.py: change what it reads, not this page. -->\n"
EXIT_CODES = """
| exit code | means |
|---|---|
| 0 | done |
| 1 | a bug of heterog |
| 2 | bad usage or input |
| 3 | no plan fits in memory |
| 4 | the run failed, or its output could not be written |
"""
# In the order of the page; what is in none of them goes into the last.
PARTS = {
    "Shares": ["auto_shares", "uneven_trainer", "UnevenBatchSampler", "weighted_gradients"],
    "Planning": ["plan", "simulate", "explain", "compare", "shares", "verify",
                 "time_ddp"],
    "Training by a plan": ["get_runner", "Runner", "RunnerConfig", "ShareSampler", "StepLines",
                           "StepCurves", "load_checkpoint", "Checkpoint", "pipeline_stage",
                           "PipelineStage"],
    "Exporting": ["export_training_step", "TrainingStep", "LossScaling"],
    "Results": ["Plan", "Simulation", "Explanation", "Comparison", "Shares", "Verification"],
    "Errors": ["HeterogError", "InputError", "ExportError", "NothingFits", "RunFailed",
               "InternalError"],
    "Others": [],
}  # fmt: skip


def help_of(program: str, *verb: str) -> str:
    """Wide, and the same on every machine."""
    environment = os.environ | {
        "COLUMNS": "100",
        "HETEROG_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT / "python"),
    }
    done = subprocess.run(
        [program, *verb, "--help"], capture_output=True, text=True, check=True, env=environment
    )
    text = re.sub(r"(--threads INTEGER)=\d+", r"\1", done.stdout)  # as many as there are processors
    text = re.sub(r"(-h, ?--help +)\S.*", r"\1this help", text)
    return text.replace("python -m heterog.export", "heterog export").rstrip()


def command_page(program: str) -> str:
    top = help_of(program)
    verbs = re.findall(r"^  ([a-z-]+) {2,}\S", top[top.index("Subcommands:") :], re.MULTILINE)
    page = [NOTE, "# Command line reference", f"What `heterog --help` prints, verb by verb.\n{EXIT_CODES}"]
    page.append(f"```text\n{top}\n```")
    for verb in verbs:
        page.append(f"## heterog {verb}\n```text\n{help_of(program, verb)}\n```")
    return "\n".join(page) + "\n"


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def paragraph(lines: list[str]) -> str:
    """A table where the lines are names, two spaces or more, and what they mean."""
    rows: list[list[str]] = []
    for line in lines:
        row = re.fullmatch(r"([\w*][\w*, ]*?) {2,}(\S.*)", line)
        if row:
            rows.append([row[1], row[2]])
        elif rows and line.startswith("  "):
            rows[-1][1] += " " + line.strip()
        elif not line.startswith(" ") and re.fullmatch(r"[\w*]+(, [\w*]+)+", line):
            rows.append([line, ""])  # names that are too long for the first column
        else:
            return " ".join(line.strip() for line in lines)
    names = [", ".join(f"`{name}`" for name in row[0].split(", ")) for row in rows]
    body = "\n".join(f"| {name} | {cell(row[1].strip())} |" for name, row in zip(names, rows))
    return f"| argument | is |\n|---|---|\n{body}"


def docstring(thing) -> str:
    text = inspect.getdoc(thing) or ""
    return "\n\n".join(paragraph(part.split("\n")) for part in re.split(r"\n\s*\n", text) if part)


def signature(name: str, thing, leave: int = 0) -> str:
    """Names and defaults, a line each where they are many."""
    words, named = [], False
    for one in list(inspect.signature(thing).parameters.values())[leave:]:
        if one.kind is one.KEYWORD_ONLY and not named:
            words.append("*")
            named = True
        star = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        default = "" if one.default is one.empty else f"={default_of(one.default)}"
        words.append(f"{star}{one.name}{default}")
    line = f"{name}({', '.join(words)})"
    if len(line) <= 88:
        return line
    return f"{name}(\n" + "".join(f"    {word},\n" for word in words) + ")"


def default_of(value) -> str:
    return getattr(value, "__name__", None) or repr(value)


def own_methods(kind: type):
    for base in reversed(kind.__mro__):
        if not base.__module__.startswith("heterog"):
            continue
        for name, member in vars(base).items():
            if not name.startswith("_") and getattr(kind, name) is not None:
                yield name, member


def class_text(name: str, kind: type) -> str:
    text = [f"### {name}", docstring(kind)]
    if dataclasses.is_dataclass(kind):
        fields = [f for f in dataclasses.fields(kind) if not f.name.startswith("_")]
        rows = [f"| `{f.name}` | {cell(type_of(f.type))} |" for f in fields]
        text.append("| field | type |\n|---|---|\n" + "\n".join(rows))
    for method, member in dict(own_methods(kind)).items():
        if isinstance(member, property):
            text.append(f"`{method}`: {docstring(member)}" if docstring(member) else f"`{method}`")
        elif inspect.isfunction(member):
            shown = signature(method, member, leave=1)
            text.append(f"```text\n{shown}\n```\n{docstring(member)}")
    return "\n\n".join(part for part in text if part)


def type_of(hint) -> str:
    """As the source has it, without modules."""
    text = hint if isinstance(hint, str) else getattr(hint, "__name__", None)
    if text is None or "[" in str(hint) or "|" in str(hint):
        text = str(hint)
    return re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", text)


def python_page() -> str:
    import heterog

    left = [name for name in heterog.__all__ if name != "__version__"]
    page = [NOTE, "# Python reference", "What the docstrings of the package say.\n"]
    for title, names in PARTS.items():
        names = names if title != "Others" else list(left)
        if names:
            page.append(f"## {title}\n")
        for name in names:
            left.remove(name)
            thing = getattr(heterog, name)
            if inspect.isclass(thing):
                page.append(class_text(name, thing) + "\n")
            else:
                shown = signature(f"heterog.{name}", thing)
                page.append(f"### {name}\n\n```text\n{shown}\n```\n\n{docstring(thing)}\n")
    return "\n".join(page)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--program", default="build/dev/bin/heterog")
    options = parser.parse_args()
    stale = []
    pages = {
        "docs/reference_command.md": command_page(str(ROOT / options.program)),
        "docs/reference_python.md": python_page(),
    }
    for name, text in pages.items():
        path = ROOT / name
        if options.check and (not path.is_file() or path.read_text(encoding="utf-8") != text):
            stale.append(name)
        elif not options.check:
            path.write_text(text, encoding="utf-8")
    for name in stale:
        print(f"{name}: not what the program and the package say now; run scripts/reference.py")
    return bool(stale)


if __name__ == "__main__":
    sys.exit(main())
