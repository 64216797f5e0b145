"""Draw what each latent of trained runs does: a PNG grid and a GIF beside each run; or what two do together."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unbraid.cli.parser import Parser, add_root
from unbraid.errors import UserError

if TYPE_CHECKING:
    from unbraid.pictures.pair import Pair
    from unbraid.runs.run import Run


def drawable(runs: Sequence[Run], folder: Path) -> list[Run]:
    """The runs that can make examples from codes; what is left out is said, and refused if that is all of them."""
    able = [run for run in runs if run.net.decoder is not None]
    if runs and not able:
        raise UserError(
            f"A traversal needs a decoder; all {len(runs)} trained run(s) in {folder} have an encoder only. "
            f"Look at their codes instead: unbraid score {folder}"
        )
    if len(able) < len(runs):
        print(f"unbraid: left out: {len(runs) - len(able)} run(s) without a decoder.", file=sys.stderr)
    return able


def two(text: str) -> Pair:
    """Two numbers of latents, or two names of factors.

    >>> two("0,3"), two("wall_hue,orientation")
    ((0, 3), ('wall_hue', 'orientation'))
    """
    parts = text.split(",")
    digits = [part.strip().isdigit() for part in parts]
    if len(parts) != 2 or digits[0] != digits[1]:
        raise ArgumentTypeError(f"must be two latents, such as 0,1, or two factors, such as x,y. Got {text!r}")
    first, second = (int(part) if number else part.strip() for part, number in zip(parts, digits, strict=True))
    return first, second


def main(parser: Parser, arguments: Sequence[str]) -> None:
    parser.add_argument("runs", type=Path, help="a folder of runs, or one run")
    parser.add_argument("--example", type=int, help="index of the example to start from [the middle one]")
    span = "from -SPAN to SPAN: deviations of the prior, radians on curved spaces [2]"
    parser.add_argument("--span", type=float, default=2.0, help=span)
    parser.add_argument("--columns", type=int, default=9, help="pictures a latent [9]")
    both = "a grid of two latents (0,1), or of those that hold most of two factors (x,y)"
    parser.add_argument("--pair", type=two, metavar="A,B", help=both)
    ends = "only the best and the worst run of each dataset and method by a kept score, such as mig"
    parser.add_argument("--extremes", metavar="METRIC", help=ends)
    parser.add_argument("--out", type=Path, help="folder for the pictures [each run's own]")
    add_root(parser)
    draw(parser.parse_all(arguments))


def draw(options: Any) -> None:
    """Pictures of the runs that are wanted, one after the other."""
    from unbraid.pictures.pair import extremes, traverse_pair
    from unbraid.pictures.traversal import traverse
    from unbraid.runs.run import load_runs
    from unbraid.runtime.progress import progress
    from unbraid.scoring.score import load_sources

    runs = [(run.label, run) for run in drawable(load_runs(options.runs), options.runs)]
    if options.extremes:
        chosen = extremes([run for _, run in runs], options.extremes)
        runs = [(f"{end} {options.extremes} {value:.3f}: {run.label}", run) for end, value, run in chosen]
    sources = load_sources([run for _, run in runs])
    look = {"example": options.example, "span": options.span, "columns": options.columns}
    with progress("drawing", len(runs)) as report:
        for i, (label, run) in enumerate(runs):
            report(i, run.label)
            data, out = sources[run.spec.data], None if options.out is None else options.out / run.id
            if options.pair:
                print(f"{label}: {traverse_pair(run, options.pair, data, out=out, **look)}")
            else:
                print(f"{label}: {' '.join(map(str, traverse(run, data, out=out, **look)))}")
