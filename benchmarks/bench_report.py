"""The report page in headless Chromium: its size, how long it takes to open, and how many images a second it decodes.

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
  const panel = unbraid.panels.first, begun = performance.now();
  let frames = 0;
  while (performance.now() - begun < 1000 * seconds) {
    panel.move(frames % panel.knobs.length, 2 * Math.sin(frames / 7));
    await new Promise((done) => requestAnimationFrame(done));
    frames++;
  }
  return frames / ((performance.now() - begun) / 1000);
}"""
DECODES = """(seconds) => {
  const panel = unbraid.panels.first, begun = performance.now();
  let calls = 0;
  for (; performance.now() - begun < 1000 * seconds; calls++) {
    panel.z[calls % panel.z.length] = Math.sin(calls);
    unbraid.source.decode(panel.run.id, panel.z);
  }
  return calls / ((performance.now() - begun) / 1000);
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
    """Chromium from UNBRAID_CHROMIUM or the path."""
    program = os.environ.get("UNBRAID_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    return playwright.chromium.launch(executable_path=program, args=FLAGS)


def measure(chromium: Any, folder: Path, seconds: float) -> dict[str, float]:
    """Size of a folder's page, seconds until its first image, frames with a slider moved in each, bare decodings."""
    path = report(folder, metrics=["mig"], scoring=False, quiet=True)
    tab = chromium.new_page()
    begun = time.perf_counter()
    tab.goto(path.as_uri())
    while not tab.evaluate("Boolean(unbraid.panels && unbraid.panels.first && !unbraid.panels.first.busy)"):
        tab.wait_for_timeout(5)
    opened = time.perf_counter() - begun
    tab.evaluate(DECODES, 0.5)
    found = {
        "megabytes": path.stat().st_size / 1e6,
        "seconds_to_open": opened,
        "frames_per_second": tab.evaluate(FRAMES, seconds),
        "decodings_per_second": tab.evaluate(DECODES, seconds),
    }
    tab.close()
    return found


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
            found = measure(chromium, folder, options.seconds)
            rows.append({"case": name, **found})
            frames, decodings = found["frames_per_second"], found["decodings_per_second"]
            print(f"{name}: page {found['megabytes']:.2f} MB, opens in {found['seconds_to_open']:.2f} s")
            print(f"    {frames:.0f} frames/s, {decodings:.0f} decodings/s")
        chromium.close()
    slowest = min(row["frames_per_second"] for row in rows)
    print(f"the slowest shows {slowest:.0f} frames/s, {slowest / 30:.1f} times the 30 that are asked for")
    content = {**describe(), "chromium": version, "cases": rows}
    options.out.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
