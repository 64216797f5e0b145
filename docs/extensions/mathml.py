"""Equations as MathML, made when the site is built: browsers draw them without a script, a font or a network."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from docutils import nodes
from latex2mathml.converter import convert

if TYPE_CHECKING:
    from sphinx.application import Sphinx

REPLACEMENTS = (  # commands that latex2mathml does not know, in terms of those it does
    (r"\\arg\b", r"\\operatorname{arg}\\,"),
    (r"\\tfrac\b", r"\\frac"),
    (r"\\dfrac\b", r"\\frac"),
    (r"\\lVert\b|\\rVert\b", r"\\|"),
    (r"\\lvert\b|\\rvert\b", r"|"),
    (r"\\frac\s*(\d)(\d)", r"\\frac{\1}{\2}"),
)


def mathml(tex: str, *, display: bool) -> str:
    """Return the MathML of a TeX formula, with the TeX as its label.

    Raises:
        ValueError: The formula has a command that the converter does not know.
    """
    source = tex.strip()
    for pattern, replacement in REPLACEMENTS:
        source = re.sub(pattern, replacement, source)
    text = convert(source, display="block" if display else "inline")
    unknown = re.search(r"\\[a-zA-Z]+", text)
    if unknown:
        raise ValueError(f"Equations must use TeX that latex2mathml knows. Got {unknown[0]} in {tex!r}.")
    label = tex.strip().replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("<math ", f'<math aria-label="{label}" ', 1)


def visit_inline(self: Any, node: nodes.math) -> None:
    """Write an equation inside a line."""
    self.body.append(mathml(node.astext(), display=False))
    raise nodes.SkipNode


def visit_block(self: Any, node: nodes.math_block) -> None:
    """Write an equation on lines of its own."""
    self.body.append(self.starttag(node, "div", CLASS="math"))
    self.body.append(mathml(node.astext(), display=True))
    self.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
