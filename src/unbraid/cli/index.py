"""Write the results table of a folder of runs anew: one row a run, as SQLite, which pandas and others open."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from unbraid.cli.parser import Parser


def main(parser: Parser, arguments: Sequence[str]) -> None:
    parser.add_argument("runs", type=Path, help="a folder of runs")
    options = parser.parse_all(arguments)
    from unbraid.runs.results import index

    print(f"written to {index(options.runs)}")
