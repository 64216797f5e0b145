"""Write the results table of a folder of runs, a SQLite file with one row per run. An existing table is replaced."""

from __future__ import annotations

from collections.abc import Sequence

from unbraid.cli.parser import Parser
from unbraid.cli.values import file_to_write, path


def main(parser: Parser, arguments: Sequence[str]) -> None:
    parser.add_argument("runs", type=path, metavar="RUNS", help="a folder of runs")
    out = "also write the table as a Parquet file, such as results.parquet"
    parser.add_argument("--out", type=file_to_write, metavar="FILE", help=out)
    options = parser.parse_all(arguments)
    from unbraid.runs.results import write_parquet, write_results

    if options.out is not None:
        print(f"The results table was written to {write_parquet(options.runs, options.out)}.")
        return
    print(f"The results table was written to {write_results(options.runs)}.")
