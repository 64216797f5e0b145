"""Draw the pictures of models of the zoo for the README and the home of the documentation.

Run in docs/: python -m figures.zoo
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PIL import Image

import unbraid as ub
from unbraid.data import FILES

FOLDER = Path(__file__).parents[1] / "pictures"
# The model and the settings of each picture. Example 174,608 of dSprites is a square, and most codes of this SlowVAE
# are between -1 and 1. Example 200,000 of the rendered shapes is a cylinder. Six latents of this beta-VAE have
# information. The C-VITAE decodes a 3 that it has drawn itself, because digits do not come with unbraid.
PICTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "zoo_dsprites": ("dsprites/slow_vae/best", {"example": 174_608, "span": 1.0}),
    "zoo_shapes3d": ("shapes3d_rendered/beta_vae/best", {"example": 200_000, "rows": 6}),
    "zoo_digits": ("mnist/c_vitae/best", {"example": 4}),
}


def traversal(name: str) -> Image.Image:
    """Draw the effect of each latent of the model of a picture."""
    model, settings = PICTURES[name]
    run = ub.zoo.load(model)
    drawn = run.spec.data.partition("?")[0] in FILES  # published files that a user must have
    data = ub.data.from_arrays(run.sample(100)) if drawn else ub.data.load(run.spec.data)
    return ub.traverse(run, data, **settings).image


if __name__ == "__main__":
    for name in PICTURES:
        traversal(name).save(FOLDER / f"{name}.png", optimize=True)
