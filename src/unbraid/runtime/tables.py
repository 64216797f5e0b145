"""Tables as plain text and as HTML."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def format_cell(value: Any) -> str:
    """Format a float with three decimals, and anything else with `str`."""
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Format a table with aligned columns. Text is left-aligned and numbers are right-aligned.

    >>> print(table(["run", "mig"], [["a", 0.5], ["bb", 1.0]]))
    run    mig
    ---  -----
    a    0.500
    bb   1.000
    """
    texts = [list(header), *([format_cell(v) for v in row] for row in rows)]
    widths = [max(len(row[i]) for row in texts) for i in range(len(header))]
    right = [
        bool(rows) and all(isinstance(row[i], int | float) or row[i] == "-" for row in rows) for i in range(len(header))
    ]
    lines = [
        "  ".join(t.rjust(w) if r else t.ljust(w) for t, w, r in zip(row, widths, right, strict=True)) for row in texts
    ]
    lines.insert(1, "  ".join("-" * w for w in widths))
    return "\n".join(line.rstrip() for line in lines)


def wide_table(first: Mapping[str, Sequence[Any]], rest: Mapping[str, Sequence[Any]], width: int = 120) -> str:
    """Format a wide table as several tables of at most `width` characters.

    Each table starts with all columns of `first` and continues with some of the columns of `rest`.

    >>> print(wide_table({"run": ["a"]}, {"mig": [0.5], "sap": [0.25]}, width=12))
    run    mig
    ---  -----
    a    0.500
    <BLANKLINE>
    run    sap
    ---  -----
    a    0.250
    """
    every = {**first, **rest}
    sizes = {head: 2 + max(len(head), *(len(format_cell(v)) for v in values)) for head, values in every.items()}
    room = width - sum(sizes[head] for head in first) + 2
    parts: list[list[str]] = [[]]
    for head in rest:
        if parts[-1] and sum(sizes[h] for h in [*parts[-1], head]) > room:
            parts.append([])
        parts[-1].append(head)
    texts = [table([*first, *part], list(zip(*(every[h] for h in [*first, *part]), strict=True))) for part in parts]
    return "\n\n".join(texts)


def html_table(header: Sequence[str], rows: Iterable[Sequence[Any]], notes: Iterable[str] = ()) -> str:
    """Format a table as HTML, for notebooks, with one paragraph for each note below it. All texts are escaped.

    >>> html_table(["run", "mig"], [["a<b", 0.5]])
    '<table><thead><tr><th>run</th><th>mig</th></tr></thead><tbody><tr><td>a&lt;b</td><td>0.500</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{html.escape(text)}</th>" for text in header)
    lines = ["".join(f"<td>{html.escape(format_cell(value))}</td>" for value in row) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    below = "".join(f"<p>{html.escape(note)}</p>" for note in notes)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"
