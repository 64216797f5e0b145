"""Tables of the documentation that are sorted in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.browser
SCRIPT = Path(__file__).parents[2] / "docs" / "static" / "sort.js"
ROWS = [("b", "0.30 ± 0.1", "300,000"), ("a", "", "50,000"), ("c", "-0.10", "7"), ("d", "&gt; 0 (0.2)", "")]


def column(page: Any, place: int) -> list[str]:
    return [str(text) for text in page.locator(f"tbody td:nth-child({place + 1})").all_inner_texts()]


def test_a_click_sorts_and_a_second_click_reverses(page: Any, tmp_path: Path) -> None:
    body = "".join("<tr>" + "".join(f"<td>{value}</td>" for value in row) + "</tr>" for row in ROWS)
    table = f"<thead><tr><th>name</th><th>score</th><th>steps</th></tr></thead><tbody>{body}</tbody>"
    head = f"<!doctype html><meta charset=utf-8><script>{SCRIPT.read_text()}</script>"
    file = tmp_path / "page.html"
    file.write_text(f"{head}<div class=sortable><table>{table}</table></div>")
    page.goto(file.as_uri())
    assert column(page, 0) == ["b", "a", "c", "d"], "the order does not change before a click"
    page.get_by_role("button", name="steps").click()
    assert column(page, 2) == ["7", "50,000", "300,000", ""], "empty cells come last"
    page.get_by_role("button", name="steps").click()
    assert column(page, 2) == ["300,000", "50,000", "7", ""]
    page.get_by_role("button", name="score").press("Enter")
    assert column(page, 0) == ["c", "d", "b", "a"]
    assert page.locator("th[aria-sort]").count() == 1
