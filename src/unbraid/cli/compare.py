"""Compare folders of runs: the settings that differ, the scores over seeds, and the significant differences.

With --codes, compare the codes of single runs instead: all runs of one folder in pairs, or each run of the first folder
with each run of the second.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unbraid.cli.parser import Parser, add_only, add_quiet, add_trust_and_root, parse_and_run
from unbraid.cli.printing import write_csv
from unbraid.cli.values import MAX_EXAMPLES, file_to_write, path, whole_number
from unbraid.errors import UserError


def main(parser: Parser, arguments: Sequence[str]) -> int:
    runs = "two or more folders, each with one run, several runs, or folders of runs; paths of files are ignored"
    parser.add_argument("runs", nargs="+", type=path, metavar="RUNS", help=runs)
    add_only(parser)
    parser.add_argument(
        "--metrics", metavar="A,B", help="metrics to compare [all metrics that any run has a score for]"
    )
    parser.add_argument("--score", action="store_true", help="compute missing scores first")
    pairs = "whether tests compare runs with the same seed in pairs [yes, if folders share at least 6 seeds]"
    settings = "compare runs with different values of a setting, such as method or beta; one folder is then enough"
    parser.add_argument("--between", metavar="SETTING,...", help=settings)
    parser.add_argument("--paired", action=argparse.BooleanOptionalAction, help=pairs)
    parser.add_argument(
        "--out",
        type=file_to_write,
        metavar="PNG",
        help="also draw the best run of each folder and write the picture to this file",
    )
    parser.add_argument("--by", metavar="METRIC", help="metric that defines the best run for --out [mig]")
    add_code_flags(parser)
    parser.add_argument("--csv", type=file_to_write, metavar="FILE", help="also write the scores to a CSV file")
    parser.add_argument("--json", action="store_true", help="print the comparison as JSON instead of tables")
    add_quiet(parser)
    add_trust_and_root(parser)
    return parse_and_run(parser, arguments, run)


def add_code_flags(parser: Parser) -> None:
    """Add --codes and the flags that belong to it."""
    codes = "compare the codes of runs in pairs (CKA, Procrustes distance, linear maps, stitching) instead of scores"
    parser.add_argument("--codes", action="store_true", help=codes)
    parser.add_argument(
        "--examples", type=whole_number(8, MAX_EXAMPLES), help="number of examples to encode with --codes [10000]"
    )
    parser.add_argument("--seed", type=whole_number(), help="random seed for the choice of examples with --codes [0]")


def run(options: Any) -> None:
    """Compare the folders and print the comparison."""
    check_flags(options)
    folders = [folder for folder in options.runs if not folder.is_file()]
    return compare_codes(options, folders) if options.codes else compare_scores(options, folders)


def check_flags(options: Any) -> None:
    """Raise an error if a flag does not apply to the kind of comparison."""
    unused = ("metrics", "score", "paired", "out", "by") if options.codes else ("examples", "seed")
    for flag in unused:
        if getattr(options, flag) is not (False if flag == "score" else None):
            kind = "cannot be used with --codes" if options.codes else "must be used with --codes"
            raise UserError(f"--{flag} {kind}. See: unbraid compare --help")


def compare_codes(options: Any, folders: Sequence[Path]) -> None:
    """Compare the codes of all pairs of runs and print one row per pair."""
    from unbraid.scoring.code_comparison import compare_codes

    if not 1 <= len(folders) <= 2:
        raise UserError(f"A comparison of codes takes one or two folders of runs. Got {len(folders)} instead.")
    settings = {name: getattr(options, name) for name in ("examples", "seed") if getattr(options, name) is not None}
    rows = compare_codes(*folders, quiet=options.quiet, trust=options.trust, only=options.only, **settings)
    if options.csv:
        write_csv(options.csv, rows)
    print(json.dumps(rows, indent=1) if options.json else rows)


def compare_scores(options: Any, folders: Sequence[Path]) -> None:
    """Compare the stored scores of the folders and print them."""
    from unbraid.scoring.comparison import compare

    metrics = options.metrics.split(",") if options.metrics is not None else None
    comparison = compare(
        *folders, metrics=metrics, score=options.score, quiet=options.quiet, trust=options.trust, only=options.only,
        paired=options.paired, between=options.between,
    )  # fmt: skip
    if options.csv:
        write_csv(options.csv, comparison.rows())
    if options.out:
        from unbraid.pictures.comparison import draw_comparison

        draw_comparison(comparison, options.out, options.by, trust=options.trust)
    print(json.dumps(comparison.as_dict(), indent=1) if options.json else comparison)
    if options.out and not options.json:
        print(f"\nThe picture of the best run of each folder is {options.out}.")
