"""Equations as inline SVG: drawn by matplotlib's mathtext, in the colour of the text, labelled with the TeX source."""

from __future__ import annotations

import functools
import html
import re

from matplotlib.font_manager import FontProperties
from matplotlib.mathtext import MathTextParser
from matplotlib.path import Path as Outline
from matplotlib.textpath import TextPath

EM = 200  # units of an em, so that whole numbers are precise enough
LARGER = 1.1  # than the letters around it, whose small ones are taller
LETTERS = {Outline.MOVETO: "M", Outline.LINETO: "L", Outline.CURVE3: "Q", Outline.CURVE4: "C", Outline.CLOSEPOLY: "Z"}
TOKEN = r"(\\[a-zA-Z]+|[0-9a-zA-Z])"  # an argument without braces
UNKNOWN = [  # what TeX knows and mathtext does not, and what it takes instead
    (r" \\\| ", r"\\,\\|\\,"),
    (r"(?<!\d)\.(?=\d)", "0."),  # a bare dot would be set as the end of a sentence
    (rf"\\(d?frac)\s*{TOKEN}\s*{TOKEN}", r"\\\1{\2}{\3}"),
    (rf"\\sqrt\s*{TOKEN}", r"\\sqrt{\1}"),
    (r"\\(?:text|display)style\s*", ""),
    (r"\\[Bb]ig(?=[(\[])", r"\\left"),
    (r"\\[Bb]ig(?=[)\]])", r"\\right"),
    (r"\\ge(?![a-z])", r"\\geq"),
    (r"\\le(?![a-z])", r"\\leq"),
]


def understood(tex: str, display: bool = False) -> str:
    """The same equation in mathtext's words; on a line of its own, fractions are large where TeX's would be."""
    tex = tex.replace(r"\frac", r"\dfrac").replace(r"\tfrac", r"\frac") if display else tex.replace(r"\tfrac", r"\frac")
    for pattern, instead in UNKNOWN:
        tex = re.sub(pattern, instead, tex)
    return " ".join(tex.split())


def outline(path: TextPath) -> str:
    """A path in SVG's words, y downwards."""
    parts = []
    for points, code in path.iter_segments(simplify=False):
        flipped = points.reshape(-1, 2) * (1, -1)
        numbers = "" if code == Outline.CLOSEPOLY else " ".join(f"{value:.0f}" for value in flipped.ravel())
        parts.append(LETTERS[code] + numbers)
    return "".join(parts)


@functools.cache
def svg(tex: str, display: bool = False) -> str:
    """One equation, as high as the text it stands in."""
    source, look = f"${understood(tex, display)}$", FontProperties(math_fontfamily="stix", size=EM)
    try:
        width, height, depth, *_ = MathTextParser("path").parse(source, dpi=72, prop=look)
    except ValueError as error:
        raise ValueError(f"An equation must be in the TeX that mathtext knows. Got {tex!r}: {error}") from error
    box = f"0 {depth - height:.0f} {width:.0f} {height:.0f}"
    wide, high, low = (LARGER * value / EM for value in (width, height, depth))
    style = f"width:{wide:.3f}em;height:{high:.3f}em;vertical-align:{-low:.3f}em"
    label = html.escape(" ".join(tex.split()), quote=True)
    d = outline(TextPath((0, 0), source, size=EM, prop=look))
    return f'<svg class="math" role="img" aria-label="{label}" viewBox="{box}" style="{style}"><path d="{d}"/></svg>'
