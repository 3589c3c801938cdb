"""Makes the site of docs/ in build/site: lays its pages out for Sphinx, and runs it.

Pages are written for the repository, where "docs/costs.md" in a sentence is clear and README.md
stands above docs/. Here such names become links, and README.md the first page. A link to a file that
is no page becomes its name. What leads nowhere, and a page that CONTENTS does not have, is an error.
scripts/build_site.sh makes the environment, and calls this.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
OUT = ROOT / "build" / "site"
STAGE = ROOT / "build" / "site-pages"

# What stands in the bar at the side; pages of docs/, and those of OTHERS.
CONTENTS = {
    "Begin": ["installing", "tutorial", "paths", "words", "comparison"],
    "Change a script": ["auto_shares", "shares"],
    "Plan": ["lora", "exporting", "discover", "clusters", "planning_from_python", "pipelines", "replanning", "tuning", "timings", "compression", "planners", "autosync", "profiling"],
    "Understand a plan": ["explain", "verifying"],
    "Train by a plan": ["client", "running", "gpu", "engines"],
    "Look up": ["reference_command", "reference_python", "formats", "limits", "troubleshooting"],
    "How good it is": ["results", "costs", "searching", "policy", "tried", "performance", "zoo"],
    "Work on it": ["design", "sources", "contributing", "dependencies", "changes"],
}
OTHERS = {
    "README.md": "index",
    "models/README.md": "zoo",
    "src/README.md": "sources",
    "CONTRIBUTING.md": "contributing",
    "CHANGELOG.md": "changes",
}


def page_names() -> dict[str, str]:
    """Path in the repository → name on the site."""
    found = {f"docs/{path.name}": path.stem for path in sorted((ROOT / "docs").glob("*.md"))}
    found["docs/search.md"] = "searching"  # Sphinx has a page search of its own
    for path in sorted((ROOT / "docs" / "results").glob("*.md")):
        name = "results" if path.stem == "README" else f"results_{path.stem}"
        found[f"docs/results/{path.name}"] = name
    return found | OTHERS


def shown(name: str) -> str:
    """What a sentence calls a page: "costs", "results/spp"."""
    return name.replace("results_", "results/")


def link(source: str, target: str, text: str, names: dict[str, str]) -> str:
    """A link of the page at `source`, as it is on the site."""
    if re.match(r"[a-z]+:|#", target):
        return f"[{text}]({target})"
    path, _, anchor = target.partition("#")
    inside = ((ROOT / source).parent / path).resolve().relative_to(ROOT).as_posix()
    if inside in names:
        page = names.get(text.strip("`"))  # "docs/costs.md" as a text says nothing to readers here
        return f"[{shown(page) if page else text}]({names[inside]}.md{'#' + anchor if anchor else ''})"
    if not (ROOT / inside).exists():
        raise SystemExit(f"{source}: the link to {target} leads nowhere")
    return text if text.startswith("`") else f"{text} (`{inside}`)"


def image(source: str, target: str, text: str) -> str:
    """A picture of the page at `source`, which is copied beside the pages."""
    inside = ((ROOT / source).parent / target).resolve()
    if not inside.is_file():
        raise SystemExit(f"{source}: the picture {target} is not there")
    (STAGE / "pictures").mkdir(exist_ok=True)
    shutil.copy(inside, STAGE / "pictures")
    return f"![{text}](pictures/{inside.name})"


def outside_code(text: str, change) -> str:
    """`change` of all that is no code: blocks, and words in backticks."""
    parts = re.split(r"(^```.*?^```$|<!--.*?-->|`[^`\n]+`(?!\]))", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if number % 2 else change(part) for number, part in enumerate(parts))


def site_page(source: str, text: str, names: dict[str, str]) -> str:
    # A page that is written for two places says where it is in a mark of run_pages.py.
    def change(part: str) -> str:
        part = re.sub(
            r"(!?)\[([^\]\[]*(?:\[[^\]]*\])?[^\]\[]*)\]\(([^)\s]+)\)",
            lambda found: image(source, found[3], found[2]) if found[1] else link(source, found[3], found[2], names),
            part,
        )
        # Names of pages in a sentence; not those inside a link.
        return re.sub(
            r"(?<![\w/\[.])(?<!\]\()((?:docs|docs/results|models|src)/\w+\.md|CONTRIBUTING\.md|CHANGELOG\.md)(?![\w\]#])",
            lambda found: f"[{shown(names[found[1]])}]({names[found[1]]}.md)" if found[1] in names else found[1],
            part,
        )

    return outside_code(re.sub(r"<!--.*?-->\n?", "", text, flags=re.DOTALL), change)


def toctree(pages: list[str], caption: str = "") -> str:
    named = f":caption: {caption}\n" if caption else ""
    listed = "\n".join(pages)
    return f"```{{toctree}}\n:hidden:\n{named}\n{listed}\n```"


def contents() -> str:
    return "\n".join(toctree(pages, caption) for caption, pages in CONTENTS.items())


def stage() -> None:
    shutil.rmtree(STAGE, ignore_errors=True)
    STAGE.mkdir(parents=True)
    names = page_names()
    for source, name in names.items():
        text = site_page(source, (ROOT / source).read_text(encoding="utf-8"), names)
        if name == "index":
            text += "\n" + contents() + "\n"
        if name == "results":  # its pages stand below it
            text += "\n" + toctree(sorted(each for each in names.values() if each.startswith("results_"))) + "\n"
        (STAGE / f"{name}.md").write_text(text, encoding="utf-8")


def main() -> int:
    stage()
    shutil.rmtree(OUT, ignore_errors=True)
    command = ["-b", "html", "-W", "--keep-going", "-q", "-E", "-c", Path(__file__).parent, STAGE, OUT]
    code = subprocess.run([sys.executable, "-m", "sphinx", *command]).returncode
    if code == 0:
        print(f"{len(list(OUT.glob('*.html')))} pages in {OUT.relative_to(ROOT)}/index.html")
    return code


if __name__ == "__main__":
    sys.exit(main())
