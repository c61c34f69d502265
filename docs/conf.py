"""How Sphinx builds the pages beside this file; ``make docs`` runs it."""

from __future__ import annotations

import sys
from importlib.metadata import version as installed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

project = "tablet-bookkeeper"
version = release = installed("tablet-bookkeeper")
extensions = ["myst_parser", "sphinx.ext.autodoc", "docs.extension"]
exclude_patterns = ["extension"]
nitpicky = True
_DOCUMENTED = r"combiners|bookkeeper\.(?:client|errors|model|peers|rpc)"
nitpick_ignore_regex = [(r"py:.*", rf"(?!(?:{_DOCUMENTED})\b).*")]  # other modules and projects have no pages here

autodoc_default_options = {
    "members": True,
    "member-order": "bysource",
    "exclude-members": "__init__, __new__, bytes",  # a field of this name would be a target of the type
}
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100

myst_enable_extensions = ["deflist"]
myst_fence_as_directive = ["mermaid"]  # code hosts draw ```mermaid, and do not know ```{mermaid}
myst_heading_anchors = 3

html_theme = "furo"
html_title = "tablet-bookkeeper"
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
