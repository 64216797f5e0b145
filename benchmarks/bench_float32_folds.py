"""Compare cross-validation of logistic regressions in float32 and in float64, beside the effect of rounding itself.

The test accuracy of `downstream_lr` is computed for several representations, each with training sets of 1,000 and
10,000 rows: with folds in float32, with folds in float64, and with folds in float64 after every code was changed in
the last place of a float64. The last change is repeated with other signs. The table has the differences from float64
folds. If float32 is harmless, its differences are not larger than those of the last place, and their mean is as close
to 0.

Run: python benchmarks/bench_float32_folds.py
"""

from __future__ import annotations

import argparse
import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import ks_2samp

from bench_metrics import SIZES, cpu, encoder
from machine import describe
from reference_metrics import Array
from unbraid.metrics.linear import logistic
from unbraid.runtime.files import write_atomic

RESULT = Path(__file__).parent / "results" / "bench_float32_folds.json"
TRAIN, TEST = (1_000, 10_000), 5_000


def draw(seed: int) -> tuple[Array, Array]:
    """Return the codes of a random encoder as float64, and their factors."""
    rng = np.random.default_rng(1_000 + seed)
    factors = np.stack([rng.integers(size, size=TRAIN[-1] + TEST) for size in SIZES], 1)
    return encoder(seed)(factors).astype(np.float64), factors


def change_last_place(codes: Array, seed: int) -> Array:
    """Return codes that differ in the last place of a float64."""
    signs = np.random.default_rng(seed).choice([-1, 1], size=codes.shape)
    return np.asarray(codes * (1 + signs * np.finfo(np.float64).eps))


def accuracies(codes: Array, factors: Array, float32: bool) -> list[float]:
    """Return the test accuracy for each number of training rows and each factor."""
    logistic.REDUCED_ROWS = 0 if float32 else len(codes) + 1
    test, found = codes[-TEST:], []
    for n in TRAIN:
        for j in range(factors.shape[1]):
            model = logistic.logistic_regression_cv(codes[:n], factors[:n, j])
            found.append(float(np.mean(model.predict(test) == factors[-TEST:, j])))
    return found


def summary(differences: Array, others: Array) -> dict[str, Any]:
    """Return statistics of differences, and the p-value of a test that they are distributed as the others."""
    return {
        "mean": float(differences.mean()),
        "standard_error": float(differences.std(ddof=1) / np.sqrt(differences.size)),
        "mean_size": float(np.abs(differences).mean()),
        "largest": float(np.abs(differences).max()),
        "p": float(ks_2samp(differences.ravel(), others.ravel()).pvalue),
    }


def main() -> None:
    """Compute the accuracies of all representations, print the table and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--representations", type=int, default=20)
    options = parser.parse_args()
    rows: dict[str, list[list[float]]] = {"float64": [], "last place": [], "last place again": [], "float32": []}
    seconds = {"float64": 0.0, "float32": 0.0}
    for seed in range(options.representations):
        codes, factors = draw(seed)
        for name, float32 in (("float64", False), ("float32", True)):
            taken, found = cpu(functools.partial(accuracies, codes, factors, float32))
            rows[name].append(found)
            seconds[name] += taken / options.representations
        for i, name in enumerate(("last place", "last place again")):
            rows[name].append(accuracies(change_last_place(codes, 2 * seed + i), factors, False))
    table = {name: np.array(found) for name, found in rows.items()}
    changes = {name: found - table["float64"] for name, found in table.items() if name != "float64"}
    results = {name: summary(change, changes["last place"]) for name, change in changes.items()}
    for name, found in results.items():
        print(name.ljust(18), "  ".join(f"{key} {value:.5f}" for key, value in found.items()))
    print("seconds per representation:", {name: round(value, 2) for name, value in seconds.items()})
    content = {**describe(), "representations": options.representations, "seconds": seconds, "differences": results}
    write_atomic(RESULT, (json.dumps(content, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
