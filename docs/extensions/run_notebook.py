"""Run the cells of a notebook in IPython and print the output of each cell as JSON.

Usage: python run_notebook.py NOTEBOOK
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import Any


def run_cells(sources: list[str]) -> list[list[dict[str, Any]]]:
    """Run cells one after another. For each cell, return what it shows, as dictionaries from MIME type to content.

    Raises:
        RuntimeError: If a cell raises an error.
    """
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.display import display
    from IPython.utils.capture import capture_output

    shell = InteractiveShell.instance()
    shell.display_formatter.active_types = shell.display_formatter.format_types  # HTML, as in a notebook
    shell.display_trap.hook = lambda value: None if value is None else display(value)
    shell.showtraceback = lambda *args, **kwargs: None  # the error is raised below
    outputs = []
    for source in sources:
        with capture_output() as captured:
            result = shell.run_cell(source)
        error = result.error_before_exec or result.error_in_exec
        if error is not None:
            shown = "".join(traceback.format_exception(error))
            raise RuntimeError(f"This cell raises an error:\n{source}\n\n{captured.stderr}\n{shown}")
        shown = {"text/plain": captured.stdout} if captured.stdout else None
        outputs.append([*([shown] if shown else []), *latest_displays(captured.outputs)])
    return outputs


def latest_displays(displays: list[Any]) -> list[dict[str, Any]]:
    """Return what is shown at the end, when later versions of an output have replaced earlier ones."""
    latest: dict[Any, dict[str, Any]] = {}
    for i, display in enumerate(displays):
        name = (display.transient or {}).get("display_id", i)
        latest[name] = {kind: value for kind, value in display.data.items() if kind.startswith("text/")}
    return list(latest.values())


def main() -> None:
    notebook = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    sources = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    print(json.dumps(run_cells(sources)))


if __name__ == "__main__":
    main()
