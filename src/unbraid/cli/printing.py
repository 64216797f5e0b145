"""Plain text tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def cell(value: Any) -> str:
    """A number to three places, anything else as it prints."""
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Aligned columns: text to the left, numbers to the right.

    >>> print(table(["run", "mig"], [["a", 0.5], ["bb", 1.0]]))
    run    mig
    ---  -----
    a    0.500
    bb   1.000
    """
    texts = [list(header), *([cell(v) for v in row] for row in rows)]
    widths = [max(len(row[i]) for row in texts) for i in range(len(header))]
    right = [
        bool(rows) and all(isinstance(row[i], int | float) or row[i] == "-" for row in rows) for i in range(len(header))
    ]
    lines = [
        "  ".join(t.rjust(w) if r else t.ljust(w) for t, w, r in zip(row, widths, right, strict=True)) for row in texts
    ]
    lines.insert(1, "  ".join("-" * w for w in widths))
    return "\n".join(line.rstrip() for line in lines)


def blocks(first: Mapping[str, Sequence[Any]], rest: Mapping[str, Sequence[Any]], width: int = 120) -> str:
    """Tables one below the other, each with the first columns and as many of the rest as fit the width.

    >>> print(blocks({"run": ["a"]}, {"mig": [0.5], "sap": [0.25]}, width=12))
    run    mig
    ---  -----
    a    0.500
    <BLANKLINE>
    run    sap
    ---  -----
    a    0.250
    """
    sizes = {head: 2 + max(len(head), *(len(cell(v)) for v in values)) for head, values in {**first, **rest}.items()}
    room = width - sum(sizes[head] for head in first) + 2
    parts: list[list[str]] = [[]]
    for head in rest:
        if parts[-1] and sum(sizes[h] for h in [*parts[-1], head]) > room:
            parts.append([])
        parts[-1].append(head)
    both = {**first, **rest}
    texts = [table([*first, *part], list(zip(*(both[h] for h in [*first, *part]), strict=True))) for part in parts]
    return "\n\n".join(texts)


RUN_SETTINGS = ("data", "steps", "batch", "learning_rate", "latents", "net", "likelihood", "precision")


def labels(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each run's label, with those settings of the run that differ among the rows.

    >>> labels([{"label": "vae seed=0", "latents": n, "steps": 9} for n in (5, 10)])
    ['vae seed=0 latents=5', 'vae seed=0 latents=10']
    """
    varying = [name for name in RUN_SETTINGS if len({row.get(name) for row in rows}) > 1]
    return [" ".join([row["label"], *(f"{name}={row[name]}" for name in varying)]) for row in rows]
