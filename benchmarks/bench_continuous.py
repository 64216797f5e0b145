"""Compare the scores of a continuous factor with those of the same factor rounded down to m values.

Two uniform factors have two latents: one follows the first factor, and the other follows both. The factors are used as
they are (continuous), and rounded down to m values that are declared discrete. Run:

    python benchmarks/bench_continuous.py
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from machine import describe
from unbraid.metrics import METRICS, headline
from unbraid.metrics.protocol import Protocol

ROWS = 6_000
VALUES = (2, 5, 10, 20, 40)
# Metrics that take factors and need no grid of them
WITHOUT = ("unsupervised", "factorised_support", "fairness", "flatness", "linearity")
NAMES = [name for name in METRICS if name not in WITHOUT]
COLUMNS = [headline(name) for name in NAMES] + ["dci.informativeness_test", "infomec.InfoC", "infomec.InfoE"]


def flat_scores(codes: np.ndarray, factors: np.ndarray, continuous: list[bool] | None) -> dict[str, float]:
    """Return all scores in `COLUMNS`."""
    found = Protocol().rows(codes, factors, continuous).score(NAMES, 0).values_or_raise()
    flat = {f"{name}.{key}": value for name, values in found.items() for key, value in values.items()}
    return {column: flat[column] for column in COLUMNS}


def main() -> None:
    rng = np.random.default_rng(0)
    u = rng.random((ROWS, 2))
    codes = np.c_[u[:, 0], 0.7 * u[:, 0] + u[:, 1]] + 0.15 * rng.normal(size=u.shape)
    scores = {str(m): flat_scores(codes, np.floor(u * m).astype(int), None) for m in VALUES}
    scores["continuous"] = flat_scores(codes, u, [True, True])
    print(f"{'score':42}" + "".join(f"{name:>12}" for name in scores))
    for column in COLUMNS:
        print(f"{column:42}" + "".join(f"{values[column]:12.3f}" for values in scores.values()))
    content = {"rows": ROWS, "values": VALUES, "scores": scores, **describe()}
    (Path(__file__).parent / "results" / "bench_continuous.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
