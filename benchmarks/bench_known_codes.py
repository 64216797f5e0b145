"""Scores of all metrics for known codes of the dSprites factors: perfect, rotated, duplicated, noise and others.

The documentation of each metric shows these scores. `--add NAME` computes those of a new metric only.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from machine import describe
from unbraid.metrics import METRICS
from unbraid.metrics.known_codes import KNOWN_CODES
from unbraid.metrics.protocol import Protocol

RESULT = Path(__file__).parent / "results" / "bench_known_codes.json"
SIZES = (3, 6, 40, 32, 32)


def main() -> None:
    """Compute the scores, print the times and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", type=int, default=10_000)
    parser.add_argument("--test", type=int, default=5_000)
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--add", metavar="A,B", help="metrics to add to the existing results [all metrics, anew]")
    options = parser.parse_args()
    names = options.add.split(",") if options.add else list(METRICS)
    rows = Protocol(options.train, options.test).rows_with_zero_codes(SIZES, 10)
    scores: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    for code, make_codes in KNOWN_CODES.items():
        begun = time.perf_counter()
        scores[code] = rows.with_codes(make_codes(rows.factors, 0)).score(names, 0).values_or_raise()
        seconds[code] = time.perf_counter() - begun
        print(f"{code}: {seconds[code]:.1f} s", flush=True)
    if options.add:
        add(options.out, names, scores)
        return
    about = {"sizes": SIZES, "train": options.train, "test": options.test, "table": len(rows.codes)}
    options.out.write_text(json.dumps({**describe(), **about, "seconds": seconds, "scores": scores}, indent=1) + "\n")


def add(file: Path, names: list[str], scores: dict[str, Any]) -> None:
    """Add the scores of some metrics to a file of results, and record how they were computed."""
    results = json.loads(file.read_text())
    for code, values in scores.items():
        results["scores"][code] |= values
    results["added"] = results.get("added", {}) | dict.fromkeys(names, describe())
    file.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
