"""Pages from notebooks. The cells are run when the documentation is built, and an error in a cell ends the build."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from myst_parser.parsers.sphinx_ import MystParser
from sphinx.application import Sphinx

FENCE = "`" * 8  # longer than any fence in a cell or an output


def run_notebook(path: Path) -> list[list[dict[str, Any]]]:
    """Run the cells of a notebook in a process of its own, in an empty folder, and return their outputs."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / path.stem  # its name may appear in outputs
        folder.mkdir()
        command = [sys.executable, Path(__file__).with_name("run_notebook.py"), path]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{path} cannot be run.\n{done.stderr}")
    outputs: list[list[dict[str, Any]]] = json.loads(done.stdout.splitlines()[-1])
    return outputs


def notebook_markdown(text: str, outputs: list[list[dict[str, Any]]]) -> str:
    """Return a notebook as Markdown: its texts, its code, and the outputs of its cells."""
    parts, shown = [], iter(outputs)
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        else:
            parts += [f"{FENCE}python\n{source}\n{FENCE}", *map(output_markdown, next(shown))]
    return "\n\n".join(parts)


def output_markdown(output: dict[str, Any]) -> str:
    """Return one output as Markdown: its HTML form if there is one, and its plain text otherwise."""
    if "text/html" in output:
        return f'{FENCE}{{raw}} html\n<div class="notebook-output">{output["text/html"]}</div>\n{FENCE}'
    return f"{FENCE}text\n{output.get('text/plain', '').rstrip()}\n{FENCE}"


class NotebookParser(MystParser):
    """Reads a notebook as a page."""

    supported: ClassVar[tuple[str, ...]] = ("notebook",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        """Run the notebook and parse its Markdown."""
        path = Path(document["source"])
        super().parse(notebook_markdown(inputstring, run_notebook(path)), document)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_source_suffix(".ipynb", "notebook")
    app.add_source_parser(NotebookParser)
    return {"parallel_read_safe": True}
