"""The numbers of every metric for fixed codes, which are recorded together with the revision of the metric.

They only show that numbers have changed, and not whether they are right. After a change that is meant to change the
numbers of a metric, raise its revision (`Trait.revision`) and record the new numbers:

    PYTHONPATH=tests python -m support.metric_numbers
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from support.known_codes import GRID, noise
from unbraid.metrics import METRICS, TRAITS
from unbraid.metrics.protocol import Protocol, Rows

FILE = Path(__file__).parents[1] / "fixtures" / "metric_numbers.json"
SIZES = {"train": 240, "test": 120}


def tables() -> dict[str, Rows]:
    """Return tables with discrete and with continuous factors, some of whose labels are missing."""
    factors = np.tile(GRID, (3, 1))
    codes = np.c_[factors + 0.4 * noise(len(factors), 3), noise(len(factors), 1, seed=1)]
    numbers = factors + 0.3 * np.random.default_rng(2).random(factors.shape)
    numbers[::9, 0] = np.nan
    return {
        "disjoint": Protocol(**SIZES).rows(codes, factors),
        "reference": Protocol(**SIZES, draws="reference").rows(codes, factors),
        "continuous": Protocol(**SIZES).rows(codes, numbers, [True] * 3),
    }


def numbers_of(name: str) -> dict[str, dict[str, float]]:
    """Return the scores of a metric for each table. A metric that rejects a table has no scores for it."""
    outcomes = {case: rows.score([name], 0) for case, rows in tables().items()}
    return {case: outcome.values.get(name, {}) for case, outcome in outcomes.items()}


def read_numbers() -> dict[str, Any]:
    """Return the recorded revision and numbers of each metric."""
    content: dict[str, Any] = json.loads(FILE.read_text())
    return content


if __name__ == "__main__":
    recorded = {name: {"revision": TRAITS[name].revision, "numbers": numbers_of(name)} for name in METRICS}
    FILE.write_text(json.dumps(recorded, indent=1) + "\n")
