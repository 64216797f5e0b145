"""Live pages of models that come with unbraid. They are written to the folder `live` of the built documentation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

MODELS = {
    "shapes3d_rendered_beta_vae": ("shapes3d_rendered/beta_vae/best", "beta-VAE on rendered shapes"),
    "dsprites_slow_vae": ("dsprites/slow_vae/best", "SlowVAE on dSprites"),
    "mnist_c_vitae": ("mnist/c_vitae/best", "C-VITAE on digits"),
    "dsprites_ada_gvae": ("dsprites/ada_gvae/best", "Ada-GVAE on dSprites"),
}
"""The name of a model and the title of its page, by the name of the page."""


def write_live_pages(app: Sphinx, error: Exception | None) -> None:
    """Write the pages of all models after a successful build of HTML.

    Each page is written in a process of its own, because autodoc changes the default values of functions in this one.
    """
    if error is not None or app.builder.format != "html":
        return
    script = Path(__file__).with_name("write_live_page.py")
    for name, (model, title) in MODELS.items():
        command = [sys.executable, script, model, title, Path(app.outdir) / "live" / f"{name}.html"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"The page of {model} cannot be written.\n{done.stderr}")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("build-finished", write_live_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
