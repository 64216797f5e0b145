"""Draw grids of two factors for the best and the worst run of a method on each form of the data, side by side.

Run in docs/: python -m figures.pair_grids FOLDER [--method beta_tcvae] [--pair x,y]
FOLDER has runs with stored scores. Writes docs/pictures/study_demystifying/planes.png.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from generate import ROOT
from PIL import Image, ImageDraw

import unbraid as ub
from unbraid.pictures.pair import best_and_worst_runs, traverse_pair
from unbraid.runs.spec import registry_name
from unbraid.runtime.files import make_folder

PICTURE = ROOT / "docs" / "pictures" / "study_demystifying" / "planes.png"
SIDE, HEAD, COLOURS = 380, 18, 64


def panel(run: ub.Run, pair: tuple[str, str], title: str) -> Image.Image:
    """Return a grid with its title above."""
    with tempfile.TemporaryDirectory() as folder:
        grid = Image.open(traverse_pair(run, pair, columns=7, out=folder)).convert("L")
    grid = grid.resize((SIDE, SIDE * grid.height // grid.width), Image.Resampling.LANCZOS)
    drawn = Image.new("L", (SIDE, grid.height + HEAD), 255)
    ImageDraw.Draw(drawn).text((4, 2), title, fill=0, font_size=13)
    drawn.paste(grid, (0, HEAD))
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--method", default="beta_tcvae")
    parser.add_argument("--pair", default="x,y")
    options = parser.parse_args()
    first, second = options.pair.split(",")
    runs = [run for run in ub.load_runs(options.folder) if registry_name(type(run.spec.method)) == options.method]
    lines: dict[str, list[Image.Image]] = {}
    for end, value, run in best_and_worst_runs(runs, "mig"):
        title = f"{run.spec.data}: {end}, MIG {value:.3f}"
        lines.setdefault(run.spec.data, []).append(panel(run, (first, second), title))
    width, height = (max(size) for size in zip(*(p.size for line in lines.values() for p in line), strict=True))
    sheet = Image.new("L", (2 * width, len(lines) * height), 255)
    for y, name in enumerate(sorted(lines)):
        for x, drawn in enumerate(lines[name]):
            sheet.paste(drawn, (x * width, y * height))
    make_folder(PICTURE.parent)
    sheet.quantize(COLOURS, dither=Image.Dither.NONE).save(PICTURE, optimize=True)


if __name__ == "__main__":
    main()
