"""The documentation site in a browser: it is found by searching, and readable on a phone and in the dark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.sites import built

pytestmark = pytest.mark.browser
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("site"))


def test_the_search_leads_to_the_place(site: Path, page: Any) -> None:
    page.goto((site / "metrics" / "mig.html").as_uri())
    page.keyboard.press("/")
    page.keyboard.type("perfect code not score")
    page.wait_for_selector("#found a")
    assert "Why does a perfect code not score 1?" in page.text_content("#found li:first-child")
    page.keyboard.press("Enter")
    page.wait_for_url("**/faq.html#why-does-a-perfect-code-not-score-1")
    page.fill("#search", "qzxqzx")
    page.wait_for_selector("#found:has-text('Nothing found')")
    page.keyboard.press("Escape")
    assert page.is_hidden("#found")


def test_pages_fit_a_phone(site: Path, page: Any) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    for path in sorted(site.rglob("*.html")):
        page.goto(path.as_uri())
        wide, room = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert wide <= room, path.name
    page.click("label.menu")
    page.click("nav.pages >> text=Questions and conventions")
    page.wait_for_url("**/faq.html")


def test_colours_follow_the_system(site: Path, page: Any) -> None:
    page.goto((site / "methods" / "vae.html").as_uri())
    seen = {}
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        paint = (
            "getComputedStyle(document.body).backgroundColor + getComputedStyle(document.querySelector('.math')).fill"
        )
        seen[scheme] = page.evaluate(paint)
    assert seen["light"] == "rgb(255, 255, 255)rgb(28, 32, 36)"
    assert seen["dark"] == "rgb(20, 23, 26)rgb(227, 230, 233)"
