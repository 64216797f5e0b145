"""What every metric gives for planted codes of the dSprites factors: perfect, rotated, duplicated, noise and others.

The documentation shows these scores with each metric: which code fools it, which it sees through.
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
    """Score, print and write the result beside this file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", type=int, default=10_000)
    parser.add_argument("--test", type=int, default=5_000)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    blank = Protocol(options.train, options.test).rows_with_zero_codes(SIZES, 10)
    scores: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    for code, plant in KNOWN_CODES.items():
        begun = time.perf_counter()
        scores[code] = blank.with_codes(plant(blank.factors, 0)).score(METRICS, 0).values_or_raise()
        seconds[code] = time.perf_counter() - begun
        print(f"{code}: {seconds[code]:.1f} s", flush=True)
    about = {"sizes": SIZES, "train": options.train, "test": options.test, "table": len(blank.codes)}
    options.out.write_text(json.dumps({**describe(), **about, "seconds": seconds, "scores": scores}, indent=1) + "\n")


if __name__ == "__main__":
    main()
