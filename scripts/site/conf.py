"""Sphinx, for scripts/site/build.py."""

project = "heterog"
author = "the authors of heterog"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = []
html_theme = "furo"
html_title = "heterog"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_show_sphinx = False
myst_heading_anchors = 4  # as GitHub names them
myst_enable_extensions = ["tasklist"]
# "…" stands for the reader's own lines in Python, which a highlighter does not know.
suppress_warnings = ["misc.highlighting_failure"]
# Code in other languages than these is shown as text.
highlight_language = "text"
