"""Answer questions about a study from its results table. An answer is a table, a figure and a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unbraid.cli.parser import Parser, parse_and_run


def main(parser: Parser, arguments: Sequence[str]) -> int:
    runs = "a folder of runs with results.sqlite, such a file, or a results table as .csv"
    parser.add_argument("runs", type=Path, help=runs)
    parser.add_argument("names", nargs="*", help="names of analyses [all that the table can answer]")
    parser.add_argument("--out", type=Path, help="folder of the tables and figures [RUNS/analyses]")
    parser.add_argument("--list", action="store_true", help="list all analyses and their questions")
    if "--list" in arguments:
        print_analyses()
        return 0
    return parse_and_run(parser, arguments, run)


def run(options: Any) -> None:
    """Run the analyses, print their sentences, and list those that the table cannot answer."""
    from unbraid.analysis import ANALYSES, analyse

    folder = options.out or (options.runs.parent if options.runs.is_file() else options.runs) / "analyses"
    skipped: dict[str, list[str]] = {}
    results = analyse(
        options.runs,
        options.names or None,
        out=folder,
        on_skip=lambda name, reason: skipped.setdefault(reason, []).append(name),
    )
    for name, result in results.items():
        print(f"{name}: {ANALYSES[name].question} {result.text}")
    for reason, names in skipped.items():
        print(f"{', '.join(names)}: not answered: {reason}")
    if results:
        print(f"The tables and figures are in {folder}.")


def print_analyses() -> None:
    """Print every analysis with its question."""
    from unbraid.analysis import ANALYSES

    width = 2 + max(map(len, ANALYSES))
    for name, analysis in ANALYSES.items():
        print(f"{name:<{width}}{analysis.question}")
