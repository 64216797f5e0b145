"""Laws of the strong and the reduced downstream task."""

from __future__ import annotations

import numpy as np

from laws.base import UNIT, Fact, Law
from laws.linear import CHANCE, constant_codes, grid
from oracles import downstream_tasks as oracle
from support.known_codes import GRID, Array, factor_grid

PAIR = factor_grid(4, 5)
NAMES = ("reduced_factor", "other_factors")
REDUCED_KEYS = [
    f"{prefix}{part}_accuracy_{name}"
    for part in ("train", "test")
    for name in NAMES
    for prefix in ("mean_", *(f"reduced_factor_{j}:" for j in range(3)))
]
STRONG_KEYS = [f"mean_{how}{part}_accuracy" for how in ("", "strong_") for part in ("train", "test")]


def bands() -> Array:
    """Return one latent in which each value of the second factor has a band, and the first factor a place in it."""
    return PAIR[:, :1] + 10 * PAIR[:, 1:]


LAWS: dict[str, Law] = {
    "strong_downstream": Law(
        ranges=dict.fromkeys(STRONG_KEYS, UNIT) | {"strong_generalization_gap": (float("-inf"), 1.0)},
        # If rows or factors are reordered, different rows, factors and values are drawn, and 2 experiments per factor
        # average little, so these two laws are tested with more experiments in test_interventions. The oracle averages
        # over all of them. Equally good cuts are tried in a different order if latents are reordered.
        tolerances={"rows": 1.0, "codes": 0.2, "factors": 1.0, "affine": 0.05},
        oracle=oracle.strong_accuracy,
        oracle_tolerance=0.06,  # the mean of 24 draws per factor against the mean of all of them
        facts=(
            Fact(grid, grid, 1, 0, "each factor is predicted by its own latent only"),
            Fact(grid, grid, 0, 0, "no gap", "strong_generalization_gap"),
            Fact(constant_codes, grid, CHANCE, 1e-12, "constants: one value is always predicted"),
            # Outside the training band, one of the four values of the first factor is always predicted. The bands of
            # the second factor are further apart than the values within them.
            Fact(bands, lambda: PAIR, (1 / 4 + 1) / 2, 1e-12, "bands: the first factor is predicted at chance"),
        ),
        options={"experiments": 2},
        oracle_options={"experiments": 24},
    ),
    "reduced_downstream": Law(
        ranges=dict.fromkeys(REDUCED_KEYS, UNIT),
        # Equally good cuts and equally important latents are tried in a different order.
        tolerances={"rows": 0.05, "codes": 0.2, "factors": 1e-12, "affine": 0.05},
        oracle=oracle.accuracy_of_other_factors,
        oracle_tolerance=0.03,
        facts=(
            Fact(grid, grid, 1, 0, "the other factors have their own latents"),
            Fact(
                grid,
                grid,
                CHANCE,
                1e-12,
                "the other latents do not depend on the factor on a complete table",
                "mean_test_accuracy_reduced_factor",
            ),
            Fact(
                lambda: GRID[:, [0, 0, 1, 1, 2, 2]],
                grid,
                1,
                0,
                "the copy of the removed latent remains",
                "mean_test_accuracy_reduced_factor",
            ),
            Fact(
                lambda: np.c_[GRID[:, :2], GRID[:, 2:] % 2, GRID[:, 2:] // 2],
                grid,
                1,
                0,
                "only a part of the third factor is lost",
                "mean_test_accuracy_other_factors",
            ),
            Fact(
                lambda: np.c_[GRID[:, :2], GRID[:, 2:] % 2, GRID[:, 2:] // 2],
                grid,
                1 / 3,
                1e-12,
                "of the two latents of the third factor, the one with two values remains",
                "reduced_factor_2:test_accuracy_reduced_factor",
            ),
            Fact(constant_codes, grid, CHANCE, 1e-12, "constants: one value is always predicted"),
        ),
    ),
}
