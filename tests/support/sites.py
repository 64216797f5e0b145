"""The built documentation, for tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from filelock import FileLock

DOCS = Path(__file__).parents[2] / "docs"
HTML = DOCS / "_build" / "html"


def built_site() -> Path:
    """Return the folder of the built documentation, and build it first if there is none."""
    HTML.parent.mkdir(exist_ok=True)
    with FileLock(HTML.parent / "lock"):
        if not (HTML / "index.html").exists():
            command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", DOCS, HTML]
            subprocess.run(command, check=True)
    return HTML
