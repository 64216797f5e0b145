"""A picture of the best and the worst runs. For each run, a grid shows the two latents that best encode two factors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.pictures.comparison import add_title, place_below_each_other, place_side_by_side
from unbraid.pictures.examples import start_example
from unbraid.pictures.images import write_picture
from unbraid.pictures.pair import decode_pair, draw_pair
from unbraid.pictures.traversal import check_decoder, check_grid_arguments
from unbraid.runs.run import Run
from unbraid.runs.spec import method_name

Extreme = tuple[str, float, Run]
"""The word "best" or "worst", the score of a run, and the run."""


def draw_extremes(
    chosen: Sequence[Extreme],
    factors: tuple[str, str],
    data: Mapping[str, FactorData],
    out: str | Path,
    *,
    metric: str = "score",
    example: int | None = None,
    span: float = 2.0,
    columns: int = 9,
) -> Path:
    """Write a PNG file with one grid of two latents per run. The best runs of each method are above its worst runs.

    In each grid the latent with the most information about the first factor changes from left to right, and the latent
    with the most information about the second factor changes from top to bottom. A latent that falls as its factor
    rises is flipped, so that all grids have the same orientation.

    Reference: Zietlow et al. (2021), arXiv:2102.06822, supplement, figures 7 and 8.

    Args:
        chosen: The runs, as `best_and_worst_runs` returns them.
        factors: The names of two factors.
        data: The datasets of the runs by name.
        out: The path of the file.
        metric: The name of the score, for the titles.
        example: The index of the example to start from. By default the one in the middle of the data.
        span: The largest position. Positions run from -span to span.
        columns: The number of rows and columns of each grid.

    Returns:
        The path of the file.

    Raises:
        UserError: If there are no runs, if a run has no decoder, if the data cannot be drawn, or if an argument is not
            valid.
    """
    check_grid_arguments(span, columns)
    if not chosen or any(not isinstance(name, str) for name in factors):
        raise UserError("A sheet of extremes needs runs with scores and the names of two factors, such as x,y.")
    rows = []
    for _, group in groupby(chosen, _row_of):
        panels = []
        for end, value, run in group:
            check_decoder(run)
            source = data[run.spec.data].to(run.device)
            start = start_example(source, example)
            grid = draw_pair(decode_pair(run, source, start, factors, span, columns, align=True), source)
            panels.append(add_title(grid, f"{end} {metric} {value:.3f}\n{run.label}"))
        rows.append(place_side_by_side(panels))
    return write_picture(out, place_below_each_other(rows))


def _row_of(extreme: Extreme) -> tuple[str, str, str]:
    """Return the dataset, the method, and "best" or "worst". Runs with the same values are in one row."""
    end, _, run = extreme
    return run.spec.data, method_name(run.spec.method), end
