"""Measure the time to write and to load a results table of the size of the large study: 12,600 runs with 60 scores.

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
        start = time.perf_counter()
        write_table(path, rows)
        write_seconds, size = time.perf_counter() - start, path.stat().st_size
        times = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            table = load_results(path)
            times.append(time.perf_counter() - start)
    assert len(table) == len(runs)
    measured = {"runs": len(runs), "columns": table.shape[1], "write_seconds": write_seconds, "bytes": size,
             "load_seconds": statistics.median(times), "first_load_seconds": times[0]}  # fmt: skip
    print(
        f"{len(runs):,} runs x {table.shape[1]} columns, {size / 1e6:.1f} MB: written in {write_seconds:.2f} s, "
        f"loaded in {measured['load_seconds']:.2f} s ({times[0]:.2f} s the first time, including the import of pandas)"
    )
    result = Path(__file__).parent / "results" / "bench_results.json"
    result.write_text(json.dumps({**describe(), **measured}, indent=1) + "\n")


if __name__ == "__main__":
    main()
