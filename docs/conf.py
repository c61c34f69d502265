"""How Sphinx builds the pages beside this file; ``make docs`` runs it."""

from __future__ import annotations

import sys
from importlib.metadata import version as installed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

project = "tablet-bookkeeper"
version = release = installed("tablet-bookkeeper")
extensions = ["myst_parser", "docs.extension"]
exclude_patterns = ["extension"]
nitpicky = True

myst_enable_extensions = ["deflist"]
myst_fence_as_directive = ["mermaid"]  # code hosts draw ```mermaid, and do not know ```{mermaid}
myst_heading_anchors = 3

html_theme = "furo"
html_title = "tablet-bookkeeper"
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
