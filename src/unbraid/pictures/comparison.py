"""A picture that compares the best runs of several folders by their reconstructions and traversals."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image, ImageDraw
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.metrics import TRAITS
from unbraid.pictures.examples import check_drawable, decoded_images, middle_example
from unbraid.pictures.images import labelled_grid, tile_scale, write_picture
from unbraid.pictures.traversal import decode_traversal, encode_population
from unbraid.runs.run import Run, load_runs
from unbraid.scoring.comparison import Comparison, Side
from unbraid.scoring.score import load_datasets

COLUMNS = 8  # number of examples, and number of positions in each row of a traversal
ROWS = 10  # maximum number of rows of a traversal
SPAN = 2.0  # positions run from -SPAN to SPAN
LINE, GAP, LETTER = 14, 24, 6  # pixels: height of a line of the title, space between panels, width of a letter


def draw_comparison(comparison: Comparison, out: str | Path, by: str | None = None, *, trust: bool = False) -> Path:
    """Write a PNG file with one panel per side: examples, their reconstructions, and a traversal of the best run.

    Each side of a comparison is a folder of runs.

    Args:
        comparison: The comparison.
        out: The path of the file.
        by: The metric that determines the best run. By default MIG if all sides have scores of MIG, otherwise the first
            metric for which all sides have scores. If there is no such metric, the first run of each side is shown.
        trust: Whether methods and networks that are not part of unbraid may be imported and run (see `load_runs`).

    Returns:
        The path.

    Raises:
        UserError: If a side has no trained or scored run, or if no run has a decoder.
    """
    metric = comparison.ranking_metric(by)
    chosen = [(side, load_best_run(side, metric, trust)) for side in comparison.sides]
    if all(run.net.decoder is None for _, run in chosen):
        raise UserError(
            "A picture needs a decoder. The compared runs have encoders only. Compare their scores instead."
        )
    datasets = load_datasets([run for _, run in chosen], quiet=True)
    panels = [draw_panel(run, datasets[run.spec.data], panel_title(side, run, metric)) for side, run in chosen]
    return write_picture(out, place_side_by_side(panels))


def load_best_run(side: Side, metric: str | None, trust: bool = False) -> Run:
    """Load the best run of a side, or the first run if `metric` is None."""
    entry = side.best(metric)
    if entry is None:
        what = "has finished training" if metric is None else f"has a score of {metric}"
        raise UserError(f"No run in {side.folder} {what}. Train the runs, or run: unbraid score {side.folder}")
    return load_runs(entry.run.path, trust=trust)[0]


def panel_title(side: Side, run: Run, metric: str | None) -> str:
    """Return the title of a panel, which says which run it shows and why."""
    entry = side.best(metric)
    value = None if entry is None or metric is None else entry.value(metric)
    why = "the first run, because there are no scores"
    if metric is not None and value is not None:
        why = f"best {metric} ({TRAITS[metric].headline}): {value:.3f}"
    return f"{side.name}: {run.id}, {why}\n{run.label}"


@torch.no_grad()
def reconstructions(run: Run, data: FactorData, index: Tensor) -> Tensor:
    """Return the reconstructions of the examples at `index`.

    Each reconstruction is decoded from the latents at which a traversal of the example starts.
    """
    population, position = encode_population(run, data), torch.zeros(1)
    posteriors = [run.net.encode(row[None]) for row in data.batch(index)]
    starts = [run.spec.method.traversal(run.net, q, population, position).start for q in posteriors]
    return run.decode(torch.cat(starts)).cpu()


def draw_panel(run: Run, data: FactorData, title: str) -> Image.Image:
    """Draw the examples, reconstructions and traversal of one run below its title."""
    if run.net.decoder is None:
        return add_title(Image.new("RGB", (320, 40), "white"), f"{title}\nThis run has no decoder.")
    check_drawable(data)
    index = torch.linspace(0, len(data) - 1, COLUMNS + 2, device=data.device).long()[1:-1]
    positions = torch.linspace(-SPAN, SPAN, COLUMNS)
    traversal = decode_traversal(run, data, middle_example(data), positions).first_rows(ROWS)
    parts = [("examples", data.batch(index)), ("decoded", reconstructions(run, data, index))]
    parts += [(label.text(), row) for label, row in zip(traversal.labels, traversal.decoded, strict=True)]
    rows = [(label, decoded_images(examples, data)) for label, examples in parts]
    return add_title(labelled_grid(rows, tile_scale(*rows[0][1][0].shape[1:])), title)


def add_title(grid: Image.Image, text: str) -> Image.Image:
    """Return a picture with a title above it. The title is wrapped to the width of the picture."""
    lines = [line for part in text.split("\n") for line in textwrap.wrap(part, max(20, grid.width // LETTER - 2))]
    canvas = Image.new("RGB", (grid.width, grid.height + LINE * len(lines) + 6), "white")
    ImageDraw.Draw(canvas).multiline_text((4, 2), "\n".join(lines), fill="black", spacing=3)
    canvas.paste(grid, (0, LINE * len(lines) + 6))
    return canvas


def place_side_by_side(panels: list[Image.Image]) -> Image.Image:
    """Return one picture with all panels next to each other on white."""
    width = sum(picture.width for picture in panels) + GAP * (len(panels) - 1)
    canvas = Image.new("RGB", (width, max(picture.height for picture in panels)), "white")
    left = 0
    for picture in panels:
        canvas.paste(picture, (left, 0))
        left += picture.width + GAP
    return canvas


def place_in_rows(panels: Sequence[Image.Image], across: int) -> Image.Image:
    """Return one picture with the panels in rows of `across` panels on white."""
    rows = [place_side_by_side(list(panels[i : i + across])) for i in range(0, len(panels), across)]
    return place_below_each_other(rows)


def place_below_each_other(rows: Sequence[Image.Image]) -> Image.Image:
    """Return one picture with all rows below each other on white."""
    height = sum(picture.height for picture in rows) + GAP * (len(rows) - 1)
    canvas = Image.new("RGB", (max(picture.width for picture in rows), height), "white")
    top = 0
    for picture in rows:
        canvas.paste(picture, (0, top))
        top += picture.height + GAP
    return canvas
