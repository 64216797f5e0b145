"""Laws of the metrics that predict factors from codes with linear models or boosted trees."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from laws.base import UNIT, Fact, Law
from oracles import linear as oracle
from support.known_codes import CODE_SIZES, GRID, Array, factor_grid, noise, random_factors, reflected

BITS = factor_grid(2, 2, 30)[:, :2]
CHANCE = (1 / 5 + 1 / 4 + 1 / 6) / 3  # accuracy of one constant prediction per factor of GRID, averaged over factors
SIZES = (30, 120)
MEAN_KEYS = [f"{how}_{part}_accuracy" for how in ("mean", "min") for part in ("train", "test")]
FACTOR_KEYS = [f"{part}_accuracy_factor_{j}" for part in ("train", "test") for j in range(3)]
DOWNSTREAM_KEYS = [*(f"{size}:{key}" for size in SIZES for key in (*MEAN_KEYS, *FACTOR_KEYS)), *MEAN_KEYS[:2]]
# If rows are reordered, the first 30 rows and the folds change, so a tolerance of 1 asserts nothing.
# test_linear_metrics.py tests the case in which all rows are used.
REORDER_TOLERANCES = {"rows": 1.0, "factors": 1e-12}


def grid() -> Array:
    return GRID


def constant_codes() -> Array:
    return np.full(GRID.shape, 0.3)


def perfect_codes(name: str) -> Callable[[], Array]:
    return lambda: random_factors(CODE_SIZES[name], 10_000, 0) - (np.array(CODE_SIZES[name]) - 1) / 2


def factors_of(name: str) -> Callable[[], Array]:
    return lambda: random_factors(CODE_SIZES[name], 10_000, 0)


TABLE = "disentanglement_lib at 86a644d, 10,000 training and 5,000 test examples"
LAWS: dict[str, Law] = {
    "explicitness": Law(
        ranges=dict.fromkeys(("explicitness_score_train", "explicitness_score_test"), UNIT),
        # Rounding changes where the regression stops, by less than its tolerance of 1e-4. Examples with almost equal
        # probabilities may then exchange ranks. One of 2,000 pairs changes the mean by 1e-5.
        tolerances=dict.fromkeys(("rows", "codes", "factors", "affine"), 1e-4),
        oracle=lambda c, v: oracle.explicitness(c, v, c, v),
        oracle_tolerance=1e-4,  # as above
        facts=(
            Fact(lambda: BITS - 0.5, lambda: BITS, 1, 0, "two values that are separable"),
            Fact(lambda: reflected(BITS), lambda: BITS, 1, 0, "rotated: still linearly separable"),
            Fact(lambda: np.c_[BITS, noise(120, 3)], lambda: BITS, 1, 0, "noise beside good latents"),
            Fact(constant_codes, grid, 0.5, 0, "constants: all examples are tied"),
            # The tolerance allows for a standard deviation of 1 / sqrt(12 n_c) for each of about 5 values, and for
            # overfitting by 4 weights per value.
            Fact(
                lambda: noise(10_000, 3), lambda: random_factors((5, 4, 6), 10_000, 1), 0.5, 0.03, "noise: about chance"
            ),
            # The tolerance is 0.005, because the published scores are for test examples and these are for training
            # examples.
            *(
                Fact(perfect_codes(name), factors_of(name), expected, 0.005, f"{name}: {TABLE}")
                for name, expected in {"dsprites": 0.987, "smallnorb": 1.0, "shapes3d": 1.0, "mpi3d": 0.991}.items()
            ),
        ),
    ),
    "beta_vae": Law(
        ranges=dict.fromkeys(("train_accuracy", "eval_accuracy"), UNIT),
        # If rows or factors are reordered, different rows are drawn. Reordered latents are summed in a different order.
        tolerances={"rows": 0.05, "codes": 0.005, "factors": 0.05, "affine": 0.005},
        oracle=lambda c, v: oracle.beta_vae(c, v, 10, 1000, 1000),
        oracle_tolerance=0.05,  # more than two standard deviations of a relative frequency in 1,000 draws
        facts=(
            Fact(grid, grid, 1, 0, "the latent of the fixed factor does not change"),
            Fact(lambda: np.c_[GRID, noise(120, 4)], grid, 1, 0, "noise beside good latents"),
            Fact(lambda: GRID[:, [0, 0, 1, 1, 2, 2]], grid, 1, 0, "copies do not lower the score"),
            Fact(lambda: reflected(GRID), grid, 1, 0.01, "rotated: the differences still identify every factor"),
            Fact(constant_codes, grid, 1 / 3, 0.07, "constants: chance, within three standard deviations of 500 draws"),
            Fact(lambda: noise(1000, 4), lambda: random_factors((2, 2), 1000, 1), 0.5, 0.1, "noise: about chance"),
        ),
        changes=dict.fromkeys(
            ("train_accuracy", "eval_accuracy"), "the regression is penalised and codes are not standardised"
        ),
        # The halves of a table with 30 rows differ too much for a law. test_draws.py tests disjoint draws.
        options={"train": 1000, "test": 500, "draws": "reference"},
        oracle_options={"batch": 10, "train": 5000, "test": 5000},
    ),
    "downstream_lr": Law(
        ranges=dict.fromkeys(DOWNSTREAM_KEYS, UNIT),
        # The solver stops before it converges, so a different order of additions may select a different penalty.
        tolerances={**REORDER_TOLERANCES, "codes": 0.05, "affine": 0.0},
        oracle=lambda c, v: oracle.downstream(oracle.logistic_cv, c, v),
        oracle_tolerance=0.02,  # one of 36 examples for one of three factors contributes 0.009
        facts=(
            Fact(lambda: 4 * BITS - 2, lambda: BITS, 1, 0, "two values that are separable"),
            Fact(lambda: np.c_[4 * BITS - 2, noise(120, 3)], lambda: BITS, 1, 0, "noise beside good latents"),
            Fact(constant_codes, grid, CHANCE, 1e-12, "constants: one value is always predicted"),
        ),
        changes=dict.fromkeys(DOWNSTREAM_KEYS, "the regression is penalised and codes are not standardised"),
        options={"sizes": SIZES},
        oracle_options={"sizes": (36,)},
    ),
    "downstream_gbt": Law(
        ranges=dict.fromkeys(DOWNSTREAM_KEYS, UNIT),
        # Equally good cuts are tried in a different order, and rounding may move examples across a cut.
        tolerances={**REORDER_TOLERANCES, "codes": 0.05, "affine": 0.05},
        oracle=lambda c, v: oracle.downstream(oracle.boosted, c, v),
        oracle_tolerance=0.01,
        facts=(
            Fact(grid, grid, 1, 0, "every value has its own interval"),
            Fact(lambda: np.c_[GRID, noise(120, 2)], grid, 1, 0, "noise beside good latents"),
            Fact(constant_codes, grid, CHANCE, 1e-12, "constants: one value is always predicted"),
        ),
        options={"sizes": SIZES},
        oracle_options={"sizes": (36,)},
    ),
}
