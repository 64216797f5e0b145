"""Measure scoring and the report of 2,000 images of one's own with three continuous labels.

A folder of PNG files with `labels.csv` is written, a beta-VAE is trained for a few steps, and `unbraid score` (all
metrics, ceilings and floors) and `unbraid report` are run as commands with an empty cache of scores. Run:

    python benchmarks/bench_own_labels.py
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from machine import describe

IMAGES, STEPS = 2_000, 50


def write_folder(folder: Path) -> None:
    """Write images of bars with random angles, lengths and grey levels."""
    rng = np.random.default_rng(0)
    labels = np.c_[rng.uniform(0, np.pi, IMAGES), rng.uniform(4, 12, IMAGES), rng.uniform(0.3, 1, IMAGES)]
    y, x = np.mgrid[:64, :64] - 31.5
    lines = ["file,angle,length,grey"]
    folder.mkdir()
    for i, (angle, length, grey) in enumerate(labels):
        along, across = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
        bar = (np.abs(along) < 2 * length) & (np.abs(across) < length / 2)
        Image.fromarray((255 * grey * bar).astype(np.uint8)).save(folder / f"{i:04}.png")
        lines.append(f"{i:04}.png,{angle:.6f},{length:.6f},{grey:.6f}")
    (folder / "labels.csv").write_text("\n".join(lines))


def run_command(where: Path, *arguments: str) -> dict[str, float]:
    """Run a command of unbraid and return its wall-clock time and its CPU time on all cores."""
    environment = {**os.environ, "UNBRAID_CACHE": str(where / "cache")}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-m", "unbraid", *arguments], cwd=where, env=environment, check=True)
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - start
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall_seconds": round(wall, 1), "cpu_seconds": round(cpu, 1)}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        write_folder(where / "bars")
        run_command(where, "train", "beta_vae", "--data", "bars", "--steps", str(STEPS), "--out", "runs", "--quiet")
        content = {"images": IMAGES, "score": run_command(where, "score", "runs", "--quiet")}
        content["report"] = run_command(where, "report", "runs", "--quiet")
    content |= describe()
    print(json.dumps(content, indent=1))
    (Path(__file__).parent / "results" / "bench_own_labels.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
