"""Parts that all generators share: stored results, tables, and blocks inside handwritten pages."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable
from typing import Any

from generate import ROOT

RESULTS = ROOT / "benchmarks" / "results"


@functools.cache
def result(name: str) -> dict[str, Any]:
    """Return the stored result of a benchmark."""
    content: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return content


def table(header: list[str], body: Iterable[list[str]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in body)])


def number(value: float | None) -> str:
    """Return a score with three decimals, in scientific notation if it is small, or a dash if there is none."""
    return "-" if value is None else f"{value:.3f}" if abs(value) >= 0.001 or value == 0 else f"{value:.1e}"


def replace_block(text: str, name: str, content: str) -> str:
    """Return a page whose block `name`, between two comments, has new content."""
    begin, end = f"<!-- {name}: begin (make docs) -->", f"<!-- {name}: end -->"
    before, rest = text.split(begin)
    return f"{before}{begin}\n{content}\n{end}{rest.split(end)[1]}"


def table_per_dataset(bench: str, names: Iterable[str], draw: Callable[[dict[str, Any]], str]) -> str:
    """Return one table for each dataset on which a benchmark was run."""
    measured = [name for name in names if (RESULTS / f"{bench}_{name}.json").exists()]
    return "\n\n".join(draw(result(f"{bench}_{name}")) for name in measured)


def autodoc(directive: str, name: str) -> str:
    """Return the block in which Sphinx renders the docstring of an object."""
    return f"```{{eval-rst}}\n.. {directive}:: {name}\n```"


def contents(pages: Iterable[str]) -> str:
    """Return a hidden table of contents, which puts pages into the navigation."""
    return "```{toctree}\n:hidden:\n\n" + "\n".join(pages) + "\n```"
