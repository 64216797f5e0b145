"""Take screenshots of a report for the README and docs/guides/report.md.

Run in docs/ after `make demo`: python -m figures.report [../demo/report.html]
"""

from __future__ import annotations

import io
import os
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

FOLDER = Path(__file__).parents[1] / "pictures"
SHOTS = {"report": ("light", 1180, 1330), "report_dark": ("dark", 1180, 1010), "report_phone": ("light", 390, 844)}
WIDE = 900  # pixels of the committed picture, at most
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


def main(page: Path) -> None:
    program = os.environ.get("UNBRAID_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        for name, (scheme, width, height) in SHOTS.items():
            tab = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            tab.goto(page.resolve().as_uri())
            if name == "report_phone":
                tab.locator("#explorer select").nth(1).select_option(index=0)  # one run alone
            tab.wait_for_timeout(2_000)
            picture = Image.open(io.BytesIO(tab.screenshot())).convert("RGB")
            picture.thumbnail((WIDE, 10_000))
            picture.quantize(96).save(FOLDER / f"{name}.png", optimize=True)
            tab.close()
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "../demo/report.html"))
