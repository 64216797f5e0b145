"""Tables as plain text and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from unbraid.metrics import TRAITS


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
    """Format a wide table as several tables of at most `width` characters. Each starts with the `first` columns.

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


RUN_SETTINGS = ("data", "steps", "batch", "learning_rate", "latents", "net", "likelihood", "precision")


def run_labels(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the label of each run, followed by the settings that differ between the rows.

    >>> run_labels([{"label": "vae seed=0", "latents": n, "steps": 9} for n in (5, 10)])
    ['vae seed=0 latents=5', 'vae seed=0 latents=10']
    """
    varying = [name for name in RUN_SETTINGS if len({row.get(name) for row in rows}) > 1]
    return [" ".join([row["label"], *(f"{name}={row[name]}" for name in varying)]) for row in rows]


def metric_title(name: str) -> str:
    """Return the column title of a metric: its name, with "(low)" if lower scores are better."""
    return {"unsupervised": "total corr."}.get(name, name) + " (low)" * TRAITS[name].low_is_good


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Format rows as CSV. Every key that occurs in any row is a column."""
    fields = list(dict.fromkeys(key for row in rows for key in row))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()
