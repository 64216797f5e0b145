"""Draw samples from the prior of trained runs, decoded to examples, in one PNG file with one panel per run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unbraid.cli.parser import Parser, parse_and_run
from unbraid.cli.sheets import add_sheet_flags, load_sheet_runs
from unbraid.cli.values import whole_number


def main(parser: Parser, arguments: Sequence[str]) -> int:
    add_sheet_flags(parser, "samples.png")
    parser.add_argument("--count", type=whole_number(1, 10_000), default=64, help="number of samples per run [64]")
    parser.add_argument("--seed", type=whole_number(), default=0, help="random seed of the samples [0]")
    return parse_and_run(parser, arguments, run)


def run(options: Any) -> None:
    """Draw the samples and print the path of the file."""
    from unbraid.pictures.sheets import draw_samples

    runs = load_sheet_runs(options, without="prior")
    out = options.out or options.runs[0] / "samples.png"
    print(draw_samples(runs, out, data=options.data, count=options.count, seed=options.seed))
