"""Draw the picture of a model of the zoo for the README and the home of the documentation.

Run in docs/: python -m figures.zoo
"""

from __future__ import annotations

from pathlib import Path

import unbraid as ub

MODEL = "dsprites/ada_gvae/best"
FILE = Path(__file__).parents[1] / "pictures" / "zoo_dsprites.png"


def main() -> None:
    run = ub.zoo.load(MODEL)
    ub.traverse(run, ub.data.load(run.spec.data)).image.save(FILE, optimize=True)


if __name__ == "__main__":
    main()
