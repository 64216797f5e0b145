"""The campaign of faults notices what a hostile page does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from faults import pages


@pytest.mark.browser
def test_scripts_and_requests_of_a_page_are_noticed(tmp_path: Path, chromium: Any) -> None:
    part = pages.Pages()
    part.browser = chromium
    contents = {
        "good": "<p>text</p>", "script": "<script>stolen=1</script>", "image": "<img src=x onerror=stolen=1>",
        "request": "<link rel=stylesheet href=http://127.0.0.1:9/a.css>", "error": "<script>nothing()</script>",
    }  # fmt: skip
    for name, content in contents.items():
        (tmp_path / f"{name}.html").write_text(f"<!doctype html><body>{content}</body>")
        assert bool(part.open_page(tmp_path / f"{name}.html")) == (name != "good"), name
