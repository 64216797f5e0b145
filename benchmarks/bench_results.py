"""Seconds to write and to load a results table of the large study's size: 12,600 runs with 60 scores each.

Run: python benchmarks/bench_results.py
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from machine import describe
from unbraid.runs.results import load_results, write_table
from unbraid.studies.published import STUDIES

SCORES, REPEATS = 60, 5


def main() -> None:
    rng = np.random.default_rng(0)
    names = [f"metric.{i}" for i in range(SCORES)]
    runs = list(STUDIES["locatello2019"]())
    rows = [
        {**run.facts(), "run": run.spec.id, **dict(zip(names, values, strict=True))}
        for run, values in zip(runs, rng.uniform(size=(len(runs), SCORES)).tolist(), strict=True)
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.sqlite"
        begun = time.perf_counter()
        write_table(path, rows)
        written, size = time.perf_counter() - begun, path.stat().st_size
        times = []
        for _ in range(REPEATS):
            begun = time.perf_counter()
            table = load_results(path)
            times.append(time.perf_counter() - begun)
    assert len(table) == len(runs)
    found = {"runs": len(runs), "columns": table.shape[1], "write_seconds": written, "bytes": size,
             "load_seconds": statistics.median(times), "first_load_seconds": times[0]}  # fmt: skip
    print(f"{found['runs']:,} runs x {found['columns']} columns, {size / 1e6:.1f} MB: written in {written:.2f} s, "
          f"loaded in {found['load_seconds']:.2f} s ({times[0]:.2f} s the first time, pandas imported)")  # fmt: skip
    result = Path(__file__).parent / "results" / "bench_results.json"
    result.write_text(json.dumps({**describe(), **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
