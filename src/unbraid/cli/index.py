"""Write the results table of a folder of runs, a SQLite file with one row per run. An existing table is replaced."""

from __future__ import annotations

from collections.abc import Sequence

from unbraid.cli.parser import Parser
from unbraid.cli.values import path


def main(parser: Parser, arguments: Sequence[str]) -> None:
    parser.add_argument("runs", type=path, help="a folder of runs")
    options = parser.parse_all(arguments)
    from unbraid.runs.results import write_results

    print(f"The results table was written to {write_results(options.runs)}.")
