"""Compare folders of runs: which settings differ, the scores over seeds, and which differences are significant."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unbraid.cli.parser import Parser, add_quiet, add_root, add_trust, parse_and_run
from unbraid.cli.printing import format_cell, metric_title, table, to_csv, wide_table
from unbraid.cli.values import file_to_write, path
from unbraid.runtime.files import write_atomic

if TYPE_CHECKING:
    from unbraid.scoring.comparison import Comparison


def main(parser: Parser, arguments: Sequence[str]) -> int:
    parser.add_argument(
        "runs", nargs="+", type=path, metavar="RUNS", help="two or more folders, each with one run or many"
    )
    parser.add_argument(
        "--metrics", metavar="A,B", help="metrics to compare [all metrics that any run has a score for]"
    )
    parser.add_argument("--score", action="store_true", help="compute missing scores first")
    parser.add_argument(
        "--out",
        type=file_to_write,
        metavar="PNG",
        help="also draw the best run of each folder and write the picture to this file",
    )
    parser.add_argument("--by", metavar="METRIC", help="metric that defines the best run for --out [mig]")
    parser.add_argument("--csv", type=file_to_write, metavar="FILE", help="also write the scores to a CSV file")
    parser.add_argument("--json", action="store_true", help="print the comparison as JSON instead of tables")
    add_quiet(parser)
    add_trust(parser)
    add_root(parser)
    return parse_and_run(parser, arguments, run)


def run(options: Any) -> None:
    """Compare the folders and print the comparison."""
    from unbraid.scoring.comparison import compare

    metrics = options.metrics.split(",") if options.metrics else None
    comparison = compare(*options.runs, metrics=metrics, score=options.score, quiet=options.quiet, trust=options.trust)
    if options.csv:
        write_atomic(options.csv, to_csv(comparison.rows()).encode())
    if options.out:
        from unbraid.pictures.comparison import draw_comparison

        draw_comparison(comparison, options.out, options.by, trust=options.trust)
    print(json.dumps(comparison.as_dict(), indent=1) if options.json else comparison_text(comparison))
    if options.out and not options.json:
        print(f"\nThe picture of the best run of each folder is {options.out}.")


def comparison_text(comparison: Comparison) -> str:
    """Return the tables of settings and scores, followed by sentences about the differences, as one text."""
    names = [side.name for side in comparison.sides]
    parts = [table(["setting", *names], [[name, *texts] for name, texts in comparison.settings().items()])]
    if comparison.metrics:
        titles = [metric_title(name) for name in comparison.metrics]
        parts.append(wide_table({"metric": titles}, score_columns(comparison)))
    return "\n\n".join([*parts, "\n".join(comparison.sentences())]).rstrip()


def score_columns(comparison: Comparison) -> dict[str, list[Any]]:
    """Return three columns for each folder: mean and standard deviation over runs, median, and best score."""
    columns: dict[str, list[Any]] = {}
    for side in comparison.sides:
        rows = [side.summary(metric) for metric in comparison.metrics]
        columns[f"{side.name}: mean ± std"] = [mean_and_deviation(row) for row in rows]
        columns[f"{side.name}: median"] = [row.get("median", "-") for row in rows]
        columns[f"{side.name}: best"] = [row.get("best", "-") for row in rows]
    return columns


def mean_and_deviation(row: dict[str, Any]) -> str:
    """Format a mean, with its standard deviation if there are several runs."""
    if "mean" not in row:
        return "-"
    mean = format_cell(row["mean"])
    return mean if row["std"] is None else f"{mean} ± {format_cell(row['std'])}"
