"""Draw what each latent of trained runs does: a PNG grid and a GIF beside each run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from unbraid.cli import Parser, add_root


def main(parser: Parser, arguments: Sequence[str]) -> None:
    parser.add_argument("runs", type=Path, help="a folder of runs, or one run")
    parser.add_argument("--example", type=int, help="index of the example to start from [the middle one]")
    parser.add_argument("--span", type=float, default=2.0, help="from -SPAN to SPAN prior deviations [2]")
    parser.add_argument("--columns", type=int, default=9, help="pictures a latent [9]")
    parser.add_argument("--out", type=Path, help="folder for the pictures [each run's own]")
    add_root(parser)
    options = parser.parse_all(arguments)
    from unbraid.progress import progress
    from unbraid.run import load_runs
    from unbraid.scoring import load_sources
    from unbraid.traversal import traverse

    runs = load_runs(options.runs)
    sources = load_sources(runs)
    with progress("drawing", len(runs)) as report:
        for i, run in enumerate(runs):
            report(i, run.label)
            out = None if options.out is None else options.out / run.id
            data, look = sources[run.spec.data], {"span": options.span, "columns": options.columns}
            png, gif = traverse(run, data, example=options.example, out=out, **look)
            print(f"{run.label}: {png} {gif}")
