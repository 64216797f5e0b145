"""The `layers` directive: the packages as import-linter's contract in pyproject.toml orders them."""

from __future__ import annotations

import importlib
import inspect
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from sphinx.application import Sphinx

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def layers() -> list[list[str]]:
    """Return the names of each layer's packages, the top layer first."""
    contracts = tomllib.loads(PYPROJECT.read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = [contract for contract in contracts if contract["containers"] == ["unbraid"]]
    return [[name.strip() for name in layer.split("|")] for layer in contract["layers"]]


def purpose(name: str) -> str:
    """Return the first sentence of a package's docstring."""
    text = inspect.getdoc(importlib.import_module(f"unbraid.{name}")) or ""
    return text.split("\n\n")[0].replace("\n", " ")


class Layers(SphinxDirective):
    """Draw one box per package, one row per layer."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(PYPROJECT))
        figure = nodes.container(classes=["layers"])
        for names in layers():
            row = nodes.container(classes=["layer"])
            for name in names:
                box = nodes.container(classes=["package"])
                box += nodes.paragraph("", "", nodes.literal(name, name))
                box += nodes.paragraph("", purpose(name))
                row += box
            figure += row
        return [figure]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("layers", Layers)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
