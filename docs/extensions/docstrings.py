"""Prepare docstrings for Sphinx, so that text after a label such as `Reference:` becomes a paragraph of its own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

STARRED = re.compile(r"(?<=[\s(,])\*(?=\w+[),\]])")  # as in (b, *shape), which is not emphasis
LABEL = re.compile(r"^(Continuous factors|Deviations?(?: from the paper)?|References?|Limitations|Beware)([:,]) ?")


def label_paragraphs(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Put a blank line before each labelled paragraph and its label in bold, and escape single stars."""
    labelled = []
    for line in lines:
        line = line if line.lstrip().startswith((">>>", "...")) else STARRED.sub(r"\\*", line)
        if LABEL.match(line):
            labelled.append("")
            line = LABEL.sub(lambda m: f"**{m[1]}{m[2]}** ", line)
        labelled.append(line)
    lines[:] = labelled


def forget_foreign_modules(app: Sphinx, env: BuildEnvironment) -> None:
    """Drop modules of other packages from the list of source pages, because viewcode lists some without a page."""
    modules = getattr(env, "_viewcode_modules", {})
    for name in [name for name in modules if not name.startswith("unbraid")]:
        del modules[name]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register both functions as event handlers."""
    app.connect("env-check-consistency", forget_foreign_modules)
    app.connect("autodoc-process-docstring", label_paragraphs)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
