"""Draw the effect of each latent of trained runs as a PNG and a GIF, or the joint effect of two latents as a grid."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from unbraid.cli.parser import Parser, add_trust_and_root, parse_and_run
from unbraid.cli.values import argument_type, file_to_write, finite_number, path, whole_number
from unbraid.errors import UserError

if TYPE_CHECKING:
    from unbraid.pictures.pair import Pair
    from unbraid.runs.run import Run


def runs_with_decoder(runs: Sequence[Run], folder: Path) -> list[Run]:
    """Return the runs that have a decoder, and print how many do not. If no run has one, raise an error."""
    decoding = [run for run in runs if run.net.decoder is not None]
    if runs and not decoding:
        raise UserError(
            f"A picture needs a decoder. None of the {len(runs)} trained run(s) in {folder} has one. "
            f"Score their codes instead: unbraid score {quote(str(folder))}"
        )
    if len(decoding) < len(runs):
        print(f"unbraid: left out: {len(runs) - len(decoding)} run(s) without a decoder.", file=sys.stderr)
    return decoding


def parse_pair(text: str) -> Pair:
    """Parse the indices of two latents, or the names of two factors.

    >>> parse_pair("0,3"), parse_pair("wall_hue,orientation")
    ((0, 3), ('wall_hue', 'orientation'))
    """
    parts = [part.strip() for part in text.split(",")]
    numeric = [part.isdecimal() for part in parts]
    if len(parts) != 2 or numeric[0] != numeric[1]:
        raise UserError(f"must be two latents, such as 0,1, or two factors, such as x,y. Got {text!r} instead")
    first, second = (int(part) if number else part for part, number in zip(parts, numeric, strict=True))
    return first, second


def main(parser: Parser, arguments: Sequence[str]) -> int:
    parser.add_argument("runs", type=path, metavar="RUNS", help="a folder of runs, or one run")
    parser.add_argument(
        "--example", type=whole_number(), help="index of the example whose latents are varied [the middle one]"
    )
    span = "vary latents from -SPAN to SPAN, in standard deviations of the prior, or in radians on curved spaces [2]"
    parser.add_argument("--span", type=finite_number(low=0), default=2.0, help=span)
    parser.add_argument("--columns", type=whole_number(2, 1000), default=9, help="number of pictures per latent [9]")
    two = "vary two latents, such as 0,1, or the latents that best encode two factors, such as x,y, and draw a grid"
    parser.add_argument("--pair", type=argument_type(parse_pair), metavar="A,B", help=two)
    extremes = "draw only the best and the worst run of each dataset and method by a stored metric, such as mig"
    parser.add_argument("--extremes", metavar="METRIC", help=extremes)
    count = "with --extremes: number of best runs and of worst runs of each dataset and method [1]"
    parser.add_argument("--count", type=whole_number(1, 100), default=1, help=count)
    sheet = "draw all runs in this file; with --pair and --extremes, a latent that falls as its factor rises is flipped"
    parser.add_argument("--sheet", type=file_to_write, metavar="PNG", help=sheet)
    parser.add_argument("--out", type=path, metavar="FOLDER", help="folder for the pictures [the folder of each run]")
    add_trust_and_root(parser)
    return parse_and_run(parser, arguments, run)


def run(options: Any) -> None:
    """Draw the selected runs and print the paths of the pictures."""
    from unbraid.pictures.extremes import draw_extremes
    from unbraid.pictures.pair import best_and_worst_runs, traverse_pair
    from unbraid.pictures.traversal import traverse
    from unbraid.runs.labels import run_labels
    from unbraid.runs.run import load_runs
    from unbraid.runtime.progress import progress
    from unbraid.scoring.score import load_datasets

    if options.out is not None and options.out.suffix.lower() in (".png", ".gif"):
        raise UserError(
            f"--out must be a folder for the pictures of all runs. Got the name of a file, {options.out}. To draw all "
            f"runs in one file, use --sheet {options.out.with_suffix('.png')}."
        )
    loaded = load_runs(options.runs, trust=options.trust)
    decoding = runs_with_decoder(loaded, options.runs)
    labels = run_labels(run.spec for run in decoding)
    runs = [(labels[run.id], run) for run in decoding]
    if options.sheet and options.pair and not (options.extremes and isinstance(options.pair[0], str)):
        raise UserError("--sheet with --pair needs --extremes METRIC and two factors, such as x,y.")
    if options.extremes:
        chosen = best_and_worst_runs([run for _, run in runs], options.extremes, options.count)
        runs = [(f"{end} {options.extremes} {value:.3f}: {labels[run.id]}", run) for end, value, run in chosen]
    data = load_datasets([run for _, run in runs])
    settings = {"example": options.example, "span": options.span, "columns": options.columns}
    if options.sheet and not options.pair:
        print(draw_sheet(runs, options, **settings))
        return
    if options.sheet:
        print(draw_extremes(chosen, options.pair, data, options.sheet, metric=options.extremes, **settings))
        return
    with progress("drawing", len(runs)) as report_progress:
        for i, (label, run) in enumerate(runs):
            report_progress(i, run.label)
            out = None if options.out is None else options.out / run.id
            if options.pair:
                paths = [traverse_pair(run, options.pair, data[run.spec.data], out=out, **settings)]
            else:
                paths = traverse(run, data[run.spec.data], out=out, **settings).paths
            print(f"{label}: {' '.join(map(str, paths))}")


def draw_sheet(runs: Sequence[tuple[str, Run]], options: Any, **settings: Any) -> Path:
    """Draw traversals in one file. With --extremes, draw the best and worst runs, otherwise one run per setting."""
    from unbraid.pictures.sheets import draw_traversals, one_run_per_setting

    titles = {id(run): title for title, run in runs}
    chosen = [run for _, run in runs]
    drawn = chosen if options.extremes else one_run_per_setting(chosen)
    return draw_traversals(drawn, options.sheet, titles=[titles[id(run)] for run in drawn], **settings)
