"""The page that compares unbraid with its peers, from docs/compare_table.py."""

from __future__ import annotations

from pathlib import Path

from compare_table import PEERS, TABLES, Row, Table
from metric_pages import ROOT, rows

PAGE = ROOT / "docs" / "compare.md"
WORDS = {"Y": "yes", "P": "partly", ".": "-"}
HEAD = """# How we compare

Made from `docs/compare_table.py` by `make docs`. What others have was surveyed in November 2026 from the projects' own
sources and issue threads; projects change, so look before you decide, and tell us what is out of date. *yes*: it is
there. *partly*: in part, or through another package. A dash: it is not. Every *yes* and *partly* of ours names the
tests that show it; a test of the site fails when one of them does not exist, or a name is not in the registries.

Choose a peer where it has what you need and unbraid has not: see [what we do not have](#what-we-do-not-have).

"""


def linked(row: Row, folder: str) -> str:
    """Our word, with the pages of what is meant."""
    word = (row.partly and f"partly: {row.partly}") or WORDS[row.ours]
    links = ", ".join(f"[{name}]({folder}/{name}.md)" for name in row.names)
    return f"**{word}**" + (f" ({links})" if links else "") if row.ours != "." else WORDS["."]


def matrix(table: Table) -> str:
    """Features by peers, ours first."""
    body = []
    for row in table.rows:
        marks = row.peers.split()
        elsewhere = [row.elsewhere] if any(one.elsewhere for one in table.rows) else []
        body.append([row.what, linked(row, table.registry), *(WORDS[mark] for mark in marks), *elsewhere])
    more = ["elsewhere"] if any(row.elsewhere for row in table.rows) else []
    return rows([table.title.lower(), "unbraid", *table.peers, *more], body)


def behind(table: Table) -> str:
    """The tests behind our cells."""
    body = [[row.what, "<br>".join(f"`{test}`" for test in row.tests)] for row in table.rows if row.tests]
    return rows([f"{table.title.lower()}: our cell", "tests behind it"], body)


def coverage(table: Table) -> str:
    """How much of the reference library's rows we have."""
    theirs = [row for row in table.rows if row.peers.split()[table.peers.index("DL")] != "."]
    whole = sum(row.ours == "Y" for row in theirs)
    part = sum(row.ours == "P" for row in theirs)
    partly = f", {part} partly" if part else ""
    return f"Of the {len(theirs)} rows that disentanglement_lib (DL) fills, unbraid fills {whole}{partly}."


def missing() -> str:
    """What others have and we have not."""
    lines = []
    for table in TABLES:
        absent = [row.what for row in table.rows if row.ours == "."]
        partial = [f"{row.what} ({row.partly})" for row in table.rows if row.partly]
        lines.append(f"- **{table.title}**: " + "; ".join([*absent, *partial]) + ".")
    return "\n".join(lines)


def legend() -> str:
    """Who is who."""
    return rows(["short", "project", "licence", "last activity seen, built on"], [[k, *v] for k, v in PEERS.items()])


def compare_pages() -> dict[Path, str]:
    """The generated page."""
    parts = [f"## {table.title}\n\n{matrix(table)}\n\n{coverage(table)}" for table in TABLES]
    tests = "\n\n".join(behind(table) for table in TABLES)
    text = "\n\n".join(
        [
            f"## Who is who\n\n{legend()}",
            *parts,
            f"## What we do not have\n\n{missing()}",
            f"## A test behind each cell of ours\n\n{tests}",
        ]
    )
    return {PAGE: HEAD + text + "\n"}
