"""The best run of each side of a comparison, side by side: what they reconstruct and what their latents do."""

from __future__ import annotations

import textwrap
from pathlib import Path

import torch
from PIL import Image, ImageDraw
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.metrics import TRAITS
from unbraid.pictures.traversal import Sweep, drawer, encode_picture, middle_example, page, population, sweep
from unbraid.runs.run import Run, load_runs
from unbraid.runtime.files import make_folder, write_atomic
from unbraid.scoring.comparison import Comparison, Side
from unbraid.scoring.score import load_sources

COLUMNS = 8  # examples, and positions of a latent
ROWS = 10  # latents, at most
SPAN = 2.0
LINE, GAP, LETTER = 14, 24, 6  # pixels: a line of the title, between panels, and a letter's width


def draw_comparison(comparison: Comparison, out: str | Path, by: str | None = None) -> Path:
    """Write a PNG with a panel for each side: examples, their reconstructions, and a row a latent of its best run.

    The best run is that with the best score of `by`, by default of MIG or another metric that all sides have; without
    scores it is the first.
    """
    metric = comparison.by(by)
    chosen = [(side, _best(side, metric)) for side in comparison.sides]
    if all(run.net.decoder is None for _, run in chosen):
        raise UserError(
            "A picture needs a decoder; the runs compared have encoders only. Compare their scores instead."
        )
    sources = load_sources([run for _, run in chosen], quiet=True)
    panels = [panel(run, sources[run.spec.data], title(side, run, metric)) for side, run in chosen]
    path = Path(out)
    make_folder(path.parent)
    write_atomic(path, encode_picture([beside(panels)]))
    return path


def _best(side: Side, metric: str | None) -> Run:
    """The best run of a side, loaded."""
    entry = side.best(metric)
    if entry is None:
        what = "is trained to the end" if metric is None else f"has a score of {metric}"
        raise UserError(f"No run of {side.folder} {what}. Train or score: unbraid score {side.folder}")
    return load_runs(entry.run.path)[0]


def title(side: Side, run: Run, metric: str | None) -> str:
    """Which run a panel shows, and why."""
    entry = side.best(metric)
    value = None if entry is None or metric is None else entry.value(metric)
    why = "the first run: no scores"
    if metric is not None and value is not None:
        why = f"best {metric} ({TRAITS[metric].headline}): {value:.3f}"
    return f"{side.name}: {run.id}, {why}\n{run.label}"


@torch.no_grad()
def reconstructions(run: Run, data: FactorData, index: Tensor) -> Tensor:
    """What is decoded from examples' own codes, as the method walks from them."""
    others = population(run, data)
    x, still = data.batch(index), torch.zeros(1)
    starts = [run.spec.method.walk(run.net, run.net.encode(row[None]), others, still).start for row in x]
    return run.decode(torch.cat(starts)).cpu()


def panel(run: Run, data: FactorData, text: str) -> Image.Image:
    """One run's rows of pictures under its title."""
    if run.net.decoder is None:
        return under(Image.new("RGB", (320, 40), "white"), f"{text}\nno decoder: an encoder only")
    index = torch.linspace(0, len(data) - 1, COLUMNS + 2, device=data.device).long()[1:-1]
    found = sweep(run, data, middle_example(data), torch.linspace(-SPAN, SPAN, COLUMNS)).first(ROWS)
    pairs = Sweep(
        torch.stack([data.batch(index).cpu(), reconstructions(run, data, index)]), ["examples", "decoded"],
        found.original, found.reconstruction,
    )  # fmt: skip
    draws = drawer(data)
    rows = [(label, list(tiles)) for part in (draws(pairs), draws(found)) for label, tiles in
            zip(part.labels, part.images, strict=True)]  # fmt: skip
    return under(page(rows, max(1, 64 // rows[0][1][0].shape[2])), text)


def under(grid: Image.Image, text: str) -> Image.Image:
    """A picture below its title, wrapped to its width."""
    lines = [line for part in text.split("\n") for line in textwrap.wrap(part, max(20, grid.width // LETTER - 2))]
    canvas = Image.new("RGB", (grid.width, grid.height + LINE * len(lines) + 6), "white")
    ImageDraw.Draw(canvas).multiline_text((4, 2), "\n".join(lines), fill="black", spacing=3)
    canvas.paste(grid, (0, LINE * len(lines) + 6))
    return canvas


def beside(panels: list[Image.Image]) -> Image.Image:
    """Pictures next to each other on white."""
    width = sum(picture.width for picture in panels) + GAP * (len(panels) - 1)
    canvas = Image.new("RGB", (width, max(picture.height for picture in panels)), "white")
    left = 0
    for picture in panels:
        canvas.paste(picture, (left, 0))
        left += picture.width + GAP
    return canvas
