"""Write the report of a model that comes with unbraid, with its stored scores and its decoder, to one HTML file.

If the data of the model do not come with unbraid, the examples of the page are images that the model draws itself.

Usage: python write_live_page.py MODEL TITLE FILE
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import unbraid as ub
from unbraid.data import FILES

SAMPLES = 200  # number of images that a model draws


def write_live_page(model: str, title: str, out: Path) -> None:
    """Write the page of a model."""
    run = ub.zoo.load(model)
    absent = run.spec.data.partition("?")[0] in FILES  # published files that a user must have
    data = ub.data.from_arrays(run.sample(SAMPLES)) if absent else None
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / title  # the name of the folder is the title of the page
        ub.zoo.copy(model, folder)
        ub.report(folder, out, data=data, scoring=False, quiet=True)


if __name__ == "__main__":
    write_live_page(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
