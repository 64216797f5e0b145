"""The documentation in a browser, opened from disk: search, small screens and dark mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.sites import built_site

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def site() -> Path:
    return built_site()


def test_search_finds_a_section_from_disk_without_the_network(site: Path, page: Any) -> None:
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto((site / "metrics" / "mig.html").as_uri())
    page.fill("input[name=q]", "ceilings and floors")
    page.keyboard.press("Enter")
    page.wait_for_selector("#search-results a:has-text('Ceilings and floors')")  # results appear one after another
    assert all(address.startswith("file:") for address in requests)


def test_pages_fit_a_phone(site: Path, page: Any) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    for path in sorted(site.rglob("*.html")):
        if "_modules" in path.parts:
            continue
        page.goto(path.as_uri())
        content, screen = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert content <= screen, path.name


def test_colours_follow_the_system(site: Path, page: Any) -> None:
    page.goto((site / "methods" / "vae.html").as_uri())
    colours = {}
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        colours[scheme] = page.evaluate(
            "['.content', '.math math'].map(s => getComputedStyle(document.querySelector(s)).color)"
        )
    assert colours["light"] != colours["dark"]
    assert colours["dark"][0] == colours["dark"][1], "equations have the colour of text"
