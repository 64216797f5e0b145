"""Fixtures for tests in Chromium. A page that logs an error or uses the network fails the test."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from typing import Any

import pytest

WAIT_SECONDS = 60  # time to wait for a page on a busy machine
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
    """The browser: the program in UNBRAID_CHROMIUM, or Chromium on the path (`make browser` installs it on Debian)."""
    program = os.environ.get("UNBRAID_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.fail("Browser tests need Chromium. Run: make browser, or set UNBRAID_CHROMIUM to its path.")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """A new tab. Console errors, exceptions and requests except file:, data:, blob: and localhost fail the test."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    tab = context.new_page()
    problems: list[str] = []
    tab.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    tab.on("pageerror", lambda error: problems.append(str(error)))
    allowed = ("file:", "data:", "blob:", "about:", "http://127.0.0.1:", "http://localhost:")
    tab.on("request", lambda request: None if request.url.startswith(allowed) else problems.append(request.url))
    yield tab
    context.close()
    assert not problems, problems


def wait_until(page: Any, condition: str) -> None:
    """Wait until a JavaScript condition is true. The page cannot poll it itself, because its policy forbids eval."""
    end = time.monotonic() + WAIT_SECONDS
    while not page.evaluate(f"Boolean({condition})"):
        assert time.monotonic() < end, f"not within {WAIT_SECONDS} s: {condition}"
        page.wait_for_timeout(20)
