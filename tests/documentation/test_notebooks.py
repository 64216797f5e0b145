"""The tutorial notebooks are small and clean, and results show as HTML. The documentation build runs the notebooks."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
JOB = """
from IPython.utils.capture import capture_output
from unbraid.runtime import progress
progress.QUIET_SECONDS = progress.NOTEBOOK_SECONDS = 0.0
with capture_output() as captured:
    try:
        with progress.progress("counting <b>", 4) as report:
            for i in range(4):
                1 / (STOP - i)
                report(i, f"note {i}")
    except ZeroDivisionError:
        pass
print([output.data["text/html"] for output in captured.outputs])
"""


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_small_and_have_no_outputs(path: Path) -> None:
    notebook = json.loads(path.read_text())
    assert notebook["nbformat"] == 4
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(code) < len(notebook["cells"]) <= 20
    for cell in code:
        assert cell["outputs"] == []
        assert cell["execution_count"] is None
        assert len(cell["source"]) <= 15
        ast.parse("".join(cell["source"]))
    assert len(NOTEBOOKS) == 3


def run_code(*cells: str, folder: Path) -> list[list[dict[str, Any]]]:
    """Run cells as the documentation build does, and return their outputs."""
    sources = [{"cell_type": "code", "source": [text]} for text in cells]
    (folder / "test.ipynb").write_text(json.dumps({"cells": sources}))
    command = [sys.executable, DOCS / "extensions" / "run_notebook.py", folder / "test.ipynb"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=dict(os.environ), check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    outputs: list[list[dict[str, Any]]] = json.loads(done.stdout.splitlines()[-1])
    return outputs


def test_progress_in_a_notebook_is_a_bar(tmp_path: Path) -> None:
    cells = [JOB.replace("STOP", "9"), JOB.replace("STOP", "2"), "print('hello')", "3 * 4"]
    finished, stopped, printed, value = run_code(*cells, folder=tmp_path)
    shown = ast.literal_eval(finished[0]["text/plain"])
    assert len(shown) == 5
    assert shown[1].startswith('counting &lt;b&gt; <progress value="1" max="4"></progress> 1/4 (25%), ETA 00:')
    assert shown[1].endswith(", note 1")
    assert shown[-1] == "counting &lt;b&gt;: finished after 00:00"
    assert ast.literal_eval(stopped[0]["text/plain"])[-1] == "counting &lt;b&gt;: stopped after 00:00"
    assert (printed, value) == ([{"text/plain": "hello\n"}], [{"text/plain": "12"}])
    with pytest.raises(RuntimeError, match="This cell raises an error:\n1 / 0"):
        run_code("1 / 0", folder=tmp_path)


def test_a_changed_display_replaces_the_earlier_one(tmp_path: Path) -> None:
    cell = "from IPython.display import HTML, display\nh = display(HTML('a'), display_id=True)\nh.update(HTML('b'))"
    (outputs,) = run_code(cell, folder=tmp_path)
    assert [output["text/html"] for output in outputs] == ["b"]
