"""The path of a report, which notebooks show as the page itself."""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING

MAX_SHOWN_BYTES = 20_000_000  # larger pages are not copied into a notebook
HEIGHT = 720  # height of the frame in a notebook, in pixels

if TYPE_CHECKING:
    _Path = Path
else:
    _Path = type(Path())  # in Python 3.11, only the class for this operating system can have subclasses


class ReportPath(_Path):
    """The path of a report. Notebooks show the page, which runs in a frame that cannot reach the notebook."""

    def with_segments(self, *segments: str) -> Path:
        """Return a path that is derived from this one, such as its folder. It is an ordinary path."""
        return Path(*segments)

    def _repr_html_(self) -> str | None:
        if self.suffix != ".html" or not self.is_file():
            return None
        place = f"<p>{html.escape(str(self))}</p>"
        if self.stat().st_size > MAX_SHOWN_BYTES:
            return f"{place}<p>This page is too large for a notebook. Open the file in a browser.</p>"
        page = html.escape(self.read_text(encoding="utf-8"), quote=True)
        style = "width: 100%; box-sizing: border-box; border: 1px solid #ccc"
        return (
            f'{place}<iframe title="unbraid report" sandbox="allow-scripts" style="{style}" height="{HEIGHT}" '
            f'srcdoc="{page}"></iframe>'
        )
