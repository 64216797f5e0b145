"""Write the report of a model that comes with unbraid, with its stored scores and its decoder, to one HTML file.

Usage: python write_live_page.py MODEL TITLE FILE
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import unbraid as ub


def write_live_page(model: str, title: str, out: Path) -> None:
    """Write the page of a model."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / title  # the name of the folder is the title of the page
        ub.zoo.copy(model, folder)
        ub.report(folder, out, scoring=False, quiet=True)


if __name__ == "__main__":
    write_live_page(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
