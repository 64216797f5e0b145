"""Answer questions about a study from its results table. Each answer consists of a table, a figure and a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unbraid.cli.parser import Parser, parse_and_run
from unbraid.cli.values import argument_type, parse_words, path


def main(parser: Parser, arguments: Sequence[str]) -> int:
    runs = (
        "a folder of runs that contains results.sqlite, a results.sqlite file, or a results table as a .csv or "
        ".parquet file"
    )
    parser.add_argument("runs", type=path, metavar="RUNS", help=runs)
    parser.add_argument(
        "names",
        nargs="*",
        default=[],
        metavar="NAME",
        help="analyses to run; see --list [all that the results table supports]",
    )
    parser.add_argument(
        "--out",
        type=path,
        metavar="FOLDER",
        help="folder for the tables and figures [the subfolder 'analyses' of the folder of the runs]",
    )
    parser.add_argument(
        "--metrics",
        type=argument_type(parse_words),
        metavar="A,B",
        help="metrics to analyse; analyses with fixed metrics ignore this [the six metrics of Locatello et al. (2019)]",
    )
    parser.add_argument("--list", action="store_true", help="list all analyses with their questions, and exit")
    if "--list" in arguments:
        print_analyses()
        return 0
    return parse_and_run(parser, arguments, run)


def run(options: Any) -> None:
    """Run the analyses, print their answers, and print why other analyses could not be run."""
    from unbraid.analysis import ANALYSES, analyse

    folder = options.out or (options.runs.parent if options.runs.is_file() else options.runs) / "analyses"
    skipped: dict[str, list[str]] = {}
    results = analyse(
        options.runs,
        options.names or None,
        metrics=options.metrics,
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
