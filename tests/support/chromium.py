"""A real Chromium, and pages that fail the test when they log an error or ask the network for anything."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from typing import Any

import pytest

PATIENCE = 60  # seconds to wait for a page on a busy machine
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser: UNBRAID_CHROMIUM, or the one on the path (`make browser` installs Debian's)."""
    program = os.environ.get("UNBRAID_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.fail("Browser tests need Chromium. Run: make browser, or name it in UNBRAID_CHROMIUM.")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """A tab; console errors, exceptions and requests beyond file:, data:, blob: and localhost fail the test."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    tab = context.new_page()
    complaints: list[str] = []
    tab.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    allowed = ("file:", "data:", "blob:", "about:", "http://127.0.0.1:", "http://localhost:")
    tab.on("request", lambda request: None if request.url.startswith(allowed) else complaints.append(request.url))
    yield tab
    context.close()
    assert not complaints, complaints


def until(page: Any, condition: str) -> None:
    """Wait until JavaScript is true; asked from here, for a page whose policy forbids eval cannot poll itself."""
    end = time.monotonic() + PATIENCE
    while not page.evaluate(f"Boolean({condition})"):
        assert time.monotonic() < end, f"not within {PATIENCE} s: {condition}"
        page.wait_for_timeout(20)
