"""Draw the picture of a model of the zoo for the README and the home of the documentation.

Run in docs/: python -m figures.zoo
"""

from __future__ import annotations

from pathlib import Path

from PIL import Image

import unbraid as ub

MODEL = "dsprites/slow_vae/best"
EXAMPLE = 174_608  # a square
SPAN = 1.0  # most codes of this model are between -1 and 1
FILE = Path(__file__).parents[1] / "pictures" / "zoo_dsprites.png"


def traversal() -> Image.Image:
    """Draw the effect of each latent of the model."""
    run = ub.zoo.load(MODEL)
    return ub.traverse(run, ub.data.load(run.spec.data), example=EXAMPLE, span=SPAN).image


if __name__ == "__main__":
    traversal().save(FILE, optimize=True)
