"""Draw examples and their reconstructions by several trained runs, one row per run, in one PNG file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unbraid.cli.parser import Parser, parse_and_run
from unbraid.cli.sheets import add_sheet_flags, load_sheet_runs
from unbraid.cli.values import whole_number


def main(parser: Parser, arguments: Sequence[str]) -> int:
    add_sheet_flags(parser, "reconstructions.png")
    parser.add_argument("--examples", type=whole_number(1, 1000), default=10, help="number of examples [10]")
    seed = "random seed with which examples are drawn [examples spread over the data]"
    parser.add_argument("--seed", type=whole_number(), help=seed)
    return parse_and_run(parser, arguments, run)


def run(options: Any) -> None:
    """Draw the reconstructions and print the path of the file."""
    from unbraid.pictures.sheets import draw_reconstructions

    runs = load_sheet_runs(options)
    out = options.out or options.runs[0] / "reconstructions.png"
    print(draw_reconstructions(runs, out, data=options.data, examples=options.examples, seed=options.seed))
