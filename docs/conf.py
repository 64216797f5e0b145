"""Sphinx configuration: MyST pages, the Furo theme, and an API reference made from docstrings."""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS), str(DOCS.parent / "tests"), str(DOCS.parent / "benchmarks")]

from unbraid.version import __version__  # noqa: E402

project = "unbraid"
author = "The unbraid authors"
copyright = "the unbraid authors, Apache-2.0"  # noqa: A001
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "extensions.docstrings",
    "extensions.layers",
    "extensions.live_models",
    "extensions.mathml",
    "extensions.notebooks",
]
exclude_patterns = ["_build", "generate", "figures", "extensions"]
suppress_warnings = ["myst.header"]  # CONTRIBUTING.md is included with its own first heading

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
highlight_language = "text"

default_role = "literal"  # docstrings write names in single backticks
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
autodoc_type_aliases = {name: name for name in ("ArrayLike", "Codes", "Factors", "Hyper", "Loss", "Progress")}
napoleon_numpy_docstring = False
napoleon_use_ivar = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
viewcode_line_numbers = True

html_theme = "furo"
html_title = f"unbraid {version}"
html_math_renderer = "mathml"
html_static_path = ["static"]
html_css_files = ["style.css"]
html_js_files = ["sort.js"]
html_show_search_summary = False  # summaries are fetched, which browsers forbid for pages on disk
html_show_sourcelink = False
html_copy_source = False
copybutton_exclude = ".linenos, .gp, .go"
