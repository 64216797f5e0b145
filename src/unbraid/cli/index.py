"""Write the results table of a folder of runs, a SQLite file with one row per run. An existing table is replaced."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from unbraid.cli.parser import Parser


def main(parser: Parser, arguments: Sequence[str]) -> None:
    parser.add_argument("runs", type=Path, help="a folder of runs")
    options = parser.parse_all(arguments)
    from unbraid.runs.results import write_results

    print(f"The results table was written to {write_results(options.runs)}.")
