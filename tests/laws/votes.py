"""The law of the Z-max-var score."""

from __future__ import annotations

import numpy as np

from laws.base import LENGTH, UNIT, Fact, Law
from laws.linear import grid
from oracles import votes as oracle
from support.known_codes import GRID, noise, random_factors

LAWS: dict[str, Law] = {
    "z_max_var": Law(
        ranges={"train_accuracy": UNIT, "eval_accuracy": UNIT, "num_active_dims": LENGTH},
        # If rows or factors are reordered, different rows are drawn.
        tolerances={"rows": 0.08, "codes": 1e-12, "factors": 0.08, "affine": 1e-12},
        oracle=lambda c, v: oracle.z_max_var(c.tolist(), v.tolist(), 10, 1000, 1000),
        oracle_tolerance=0.05,
        facts=(
            Fact(grid, grid, 1, 0, "only the latent of the factor varies"),
            Fact(lambda: np.c_[GRID, GRID[:, 0] / 1000], grid, 1, 0, "a pruned copy is ignored"),
            Fact(lambda: GRID[:, [0, 0, 1, 2]], grid, 1, 0, "a copy does not lower the score"),
            Fact(lambda: GRID[:, [2, 2, 2]], grid, 1 / 3, 0.06, "all votes go to the first of equal latents"),
            Fact(lambda: GRID / 1000, grid, 0, 0, "no active latent"),
            Fact(lambda: noise(1000, 4), lambda: random_factors((2, 2), 1000, 1), 0.5, 0.1, "noise: about chance"),
            Fact(lambda: np.c_[GRID, np.ones(120)], grid, 3, 0, "a constant is not active", "num_active_dims"),
        ),
        # The halves of a table with 30 rows differ too much for a law. test_draws.py tests disjoint draws.
        options={"train": 1000, "test": 500, "draws": "reference"},
        oracle_options={"batch": 10, "train": 5000, "test": 5000},
    ),
}
