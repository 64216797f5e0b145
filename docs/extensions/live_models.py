"""Live pages of models that come with unbraid. They are written to the folder `live` of the built documentation."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

import unbraid as ub

MODELS = {"dsprites_ada_gvae": ("dsprites/ada_gvae/best", "Ada-GVAE on dSprites")}
"""The name of a model and the title of its page, by the name of the page."""


def write_live_page(model: str, title: str, out: Path) -> Path:
    """Write the report of a model with its stored scores and its decoder to a self-contained file."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / title  # the name of the folder is the title of the page
        ub.zoo.copy(model, folder)
        return ub.report(folder, out, scoring=False, quiet=True)


def write_live_pages(app: Sphinx, error: Exception | None) -> None:
    """Write the pages of all models after a successful build of HTML."""
    if error is None and app.builder.format == "html":
        for name, (model, title) in MODELS.items():
            write_live_page(model, title, Path(app.outdir) / "live" / f"{name}.html")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("build-finished", write_live_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
