"""Draw what each latent of trained runs does: a PNG grid and a GIF beside each run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from unbraid.cli import Parser, add_root
from unbraid.errors import Refusal

if TYPE_CHECKING:
    from unbraid.run import Run


def drawable(runs: Sequence[Run], folder: Path) -> list[Run]:
    """The runs that can make examples from codes; what is left out is said, and refused if that is all of them."""
    able = [run for run in runs if run.net.decoder is not None]
    if runs and not able:
        raise Refusal(
            f"A traversal needs a decoder; all {len(runs)} trained run(s) in {folder} have an encoder only. "
            f"Look at their codes instead: unbraid score {folder}"
        )
    if len(able) < len(runs):
        print(f"unbraid: left out: {len(runs) - len(able)} run(s) without a decoder.", file=sys.stderr)
    return able


def main(parser: Parser, arguments: Sequence[str]) -> None:
    parser.add_argument("runs", type=Path, help="a folder of runs, or one run")
    parser.add_argument("--example", type=int, help="index of the example to start from [the middle one]")
    span = "from -SPAN to SPAN: deviations of the prior, radians on curved spaces [2]"
    parser.add_argument("--span", type=float, default=2.0, help=span)
    parser.add_argument("--columns", type=int, default=9, help="pictures a latent [9]")
    parser.add_argument("--out", type=Path, help="folder for the pictures [each run's own]")
    add_root(parser)
    options = parser.parse_all(arguments)
    from unbraid.progress import progress
    from unbraid.run import load_runs
    from unbraid.scoring import load_sources
    from unbraid.traversal import traverse

    runs = drawable(load_runs(options.runs), options.runs)
    sources = load_sources(runs)
    with progress("drawing", len(runs)) as report:
        for i, run in enumerate(runs):
            report(i, run.label)
            out = None if options.out is None else options.out / run.id
            data, look = sources[run.spec.data], {"span": options.span, "columns": options.columns}
            png, gif = traverse(run, data, example=options.example, out=out, **look)
            print(f"{run.label}: {png} {gif}")
