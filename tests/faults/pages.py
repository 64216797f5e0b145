"""Part "pages": reports of folders with hostile names, opened in Chromium. No script of theirs may run."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from random import Random

from faults.commands import write_images
from faults.hostile_names import PLACES, TEXTS, write_scored_run
from faults.judging import find_fault
from faults.parts import Outcome, Part
from faults.processes import run
from support.chromium import FLAGS

REPORT = ("report", "runs", "--no-score", "--out", "new.html", "--quiet")
PROBES = (
    "<img src=x onerror=stolen=1>", "</script><script>stolen=1</script>", "'\"><svg onload=stolen=1>",
    "<iframe srcdoc='<script>parent.stolen=1</script>'>", "<!--<script>", "</style><script>stolen=1</script>",
    "<base href=http://127.0.0.1:9/>", "<link rel=stylesheet href=http://127.0.0.1:9/>", "\u2028stolen=1//",
)  # fmt: skip


@dataclass(frozen=True)
class PageCase:
    """The texts at some places of a folder."""

    texts: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"report with {dict(self.texts)}"


class Pages(Part):
    """Part "pages" of the campaign."""

    name = "pages"
    weight = 0.05
    unit = "pages"

    def reason_to_skip(self) -> str:
        """Return that Chromium or playwright is missing, or an empty text."""
        try:
            import playwright  # noqa: F401
        except ImportError:
            return "playwright is not installed"
        return "" if find_chromium() else "Chromium is not installed: make browser"

    def prepare(self, folder: Path) -> None:
        """Train a run on images and start Chromium."""
        from playwright.sync_api import sync_playwright

        self.template, self.folder = folder / "template", folder / "case"
        self.template.mkdir()
        write_images(self.template)
        write_scored_run(self.template)
        self.playwright = sync_playwright().start()
        self.browser = self.playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)

    def make_case(self, random: Random) -> PageCase:
        """Choose texts for some places."""
        places = random.sample(sorted(PLACES), random.choice([1, 1, 2, 4]))
        return PageCase(tuple((place, random.choice(PROBES + TEXTS)) for place in places))

    def run(self, case: PageCase) -> Outcome:
        """Write the report and open it."""
        shutil.copytree(self.template, self.folder)
        try:
            for place, text in case.texts:
                PLACES[place](self.folder, text)
            process = run(REPORT, self.folder)
            assert process.status is not None
            fault = find_fault(REPORT, process.status, process.output)
            if not fault and process.status == 0:
                fault = self.open_page(self.folder / "new.html")
            return Outcome(fault, process.output)
        finally:
            shutil.rmtree(self.folder)

    def open_page(self, file: Path) -> str:
        """Open a page and return what it did that it must not do, or an empty text."""
        problems: list[str] = []
        context = self.browser.new_context()
        try:
            tab = context.new_page()
            tab.set_default_timeout(300_000)
            tab.on("pageerror", lambda error: problems.append(f"error in the page: {error}"))
            tab.on("dialog", lambda dialog: problems.append("a dialog was opened"))
            tab.on("request", lambda request: problems.append(request.url) if is_foreign(request.url, file) else None)
            tab.goto(file.as_uri())
            tab.wait_for_selector("body", state="attached")
            tab.wait_for_timeout(300)
            if tab.evaluate("typeof stolen !== 'undefined' || document.querySelector('img[src=x], iframe, base')"):
                problems.append("a script or an element of a name is part of the page")
        finally:
            context.close()
        return "; ".join(problems[:3])

    def close(self) -> None:
        """Stop Chromium."""
        self.browser.close()
        self.playwright.stop()


def find_chromium() -> str | None:
    """Return the path of Chromium, or None."""
    return os.environ.get("UNBRAID_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


def is_foreign(url: str, file: Path) -> bool:
    """Return whether a page requests anything but itself and data that it contains."""
    return not url.startswith(("data:", "blob:", "about:")) and url.partition("#")[0] != file.as_uri()
