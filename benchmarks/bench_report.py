"""The report page in headless Chromium: its size, the time to open it, and the images per second that it decodes.

Run: python benchmarks/bench_report.py [--steps 200]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import unbraid as ub
from machine import describe
from unbraid.methods import Method
from unbraid.reporting.page import report

FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
FRAMES = """async (seconds) => {
  const panel = unbraid.panels.first, start = performance.now();
  let frames = 0;
  while (performance.now() - start < 1000 * seconds) {
    panel.move(frames % panel.controls.length, 2 * Math.sin(frames / 7));
    await new Promise((done) => requestAnimationFrame(done));
    frames++;
  }
  return frames / ((performance.now() - start) / 1000);
}"""
DECODES = """(seconds) => {
  const panel = unbraid.panels.first, start = performance.now();
  let calls = 0;
  for (; performance.now() - start < 1000 * seconds; calls++) {
    panel.z[calls % panel.z.length] = Math.sin(calls);
    unbraid.source.decode(panel.run.id, panel.z);
  }
  return calls / ((performance.now() - start) / 1000);
}"""
CASES: list[tuple[str, str, str, Method]] = [
    ("locatello, 64x64x1", "dsprites", "locatello", ub.methods.BetaVAE()),
    ("burgess, 64x64x1", "dsprites", "burgess", ub.methods.BetaVAE()),
    ("locatello, 64x64x3", "shapes3d_rendered", "locatello", ub.methods.BetaVAE()),
    ("C-VITAE with CPAB, 64x64x1", "dsprites", "vitae_mlp_half", ub.methods.CVITAE(transform="cpab")),
    ("Diffusion VAE on a sphere, 64x64x1", "dsprites", "locatello", ub.methods.DiffusionVAE()),
    ("locatello, 32x32x1", "sprites", "locatello", ub.methods.BetaVAE()),
]


def browser(playwright: Any) -> Any:
    """Launch Chromium: the program in UNBRAID_CHROMIUM, or the one on the path."""
    program = os.environ.get("UNBRAID_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    return playwright.chromium.launch(executable_path=program, args=FLAGS)


def measure(chromium: Any, folder: Path, seconds: float) -> dict[str, float]:
    """Measure a page: megabytes, seconds to the first image, frames per second, and decodings per second."""
    path = report(folder, metrics=["mig"], scoring=False, quiet=True)
    tab = chromium.new_page()
    start = time.perf_counter()
    tab.goto(path.as_uri())
    while not tab.evaluate("Boolean(unbraid.panels && unbraid.panels.first && !unbraid.panels.first.busy)"):
        tab.wait_for_timeout(5)
    opened = time.perf_counter() - start
    tab.evaluate(DECODES, 0.5)
    row = {
        "megabytes": path.stat().st_size / 1e6,
        "seconds_to_open": opened,
        "frames_per_second": tab.evaluate(FRAMES, seconds),
        "decodings_per_second": tab.evaluate(DECODES, seconds),
    }
    tab.close()
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "bench_report.json")
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    rows: list[dict[str, Any]] = []
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as scratch:
        chromium = browser(playwright)
        version = chromium.version
        for i, (name, data, net, method) in enumerate(CASES):
            folder = Path(scratch) / str(i)
            ub.train(method, data=data, net=net, steps=options.steps, batch=16, out=folder, quiet=True)
            row = measure(chromium, folder, options.seconds)
            rows.append({"case": name, **row})
            frames, decodings = row["frames_per_second"], row["decodings_per_second"]
            print(f"{name}: page {row['megabytes']:.2f} MB, opens in {row['seconds_to_open']:.2f} s")
            print(f"    {frames:.0f} frames/s, {decodings:.0f} decodings/s")
        chromium.close()
    slowest = min(row["frames_per_second"] for row in rows)
    print(f"the slowest page shows {slowest:.0f} frames/s, {slowest / 30:.1f} times the required 30")
    content = {**describe(), "chromium": version, "cases": rows}
    options.out.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
