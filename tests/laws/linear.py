"""Laws of the metrics that predict factors from codes with linear models or boosted trees."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from laws.base import UNIT, Fact, Law
from oracles import linear as oracle
from support.known_codes import CODE_SIZES, GRID, Array, factor_grid, noise, random_factors, reflected

BITS = factor_grid(2, 2, 30)[:, :2]
MOST_COMMON_SHARE = (1 / 5 + 1 / 4 + 1 / 6) / 3  # mean over the factors of GRID, whose values are equally common
SIZES = (30, 120)
MEAN_KEYS = [f"{how}_{part}_accuracy" for how in ("mean", "min") for part in ("train", "test")]
FACTOR_KEYS = [f"{part}_accuracy_factor_{j}" for part in ("train", "test") for j in range(3)]
DOWNSTREAM = [*(f"{size}:{key}" for size in SIZES for key in (*MEAN_KEYS, *FACTOR_KEYS)), *MEAN_KEYS[:2]]
# If rows are reordered, other rows are among the first 30 and in the folds, so nothing is asserted here.
# test_linear_metrics.py tests the case in which all rows are used.
REORDERED = {"rows": 1.0, "factors": 1e-12}


def grid() -> Array:
    return GRID


def constants() -> Array:
    return np.full(GRID.shape, 0.3)


def perfect(name: str) -> Callable[[], Array]:
    return lambda: random_factors(CODE_SIZES[name], 10_000, 0) - (np.array(CODE_SIZES[name]) - 1) / 2


def factors_of(name: str) -> Callable[[], Array]:
    return lambda: random_factors(CODE_SIZES[name], 10_000, 0)


TABLE = "disentanglement_lib at 86a644d, 10,000 training points and 5,000 test points"
LAWS: dict[str, Law] = {
    "explicitness": Law(
        ranges=dict.fromkeys(("explicitness_score_train", "explicitness_score_test"), UNIT),
        # Rounding changes where the regression stops, by less than its tolerance of 1e-4, and closer points swap ranks:
        # one of 2,000 pairs changes the mean by 1e-5.
        tolerances=dict.fromkeys(("rows", "codes", "factors", "affine"), 1e-4),
        oracle=lambda c, v: oracle.explicitness(c, v, c, v),
        oracle_tolerance=1e-4,  # as above
        facts=(
            Fact(lambda: BITS - 0.5, lambda: BITS, 1, 0, "two values, separable"),
            Fact(lambda: reflected(BITS), lambda: BITS, 1, 0, "rotated: still linearly separable"),
            Fact(lambda: np.c_[BITS, noise(120, 3)], lambda: BITS, 1, 0, "noise beside good codes"),
            Fact(constants, grid, 0.5, 0, "constants: all ties"),
            # A standard deviation of 1 / sqrt(12 n_c) for each of about 5 values, plus overfitting by 4 weights each
            Fact(
                lambda: noise(10_000, 3), lambda: random_factors((5, 4, 6), 10_000, 1), 0.5, 0.03, "noise: about chance"
            ),
            # .005: the published scores are those of test points, here they are those of training points
            *(
                Fact(perfect(name), factors_of(name), expected, 0.005, f"{name}: {TABLE}")
                for name, expected in {"dsprites": 0.987, "smallnorb": 1.0, "shapes3d": 1.0, "mpi3d": 0.991}.items()
            ),
        ),
    ),
    "beta_vae": Law(
        ranges=dict.fromkeys(("train_accuracy", "eval_accuracy"), UNIT),
        # Other rows are drawn if rows or factors are reordered; reordered codes are summed in another order.
        tolerances={"rows": 0.05, "codes": 0.005, "factors": 0.05, "affine": 0.005},
        oracle=lambda c, v: oracle.beta_vae(c, v, 10, 1000, 1000),
        oracle_tolerance=0.05,  # two standard deviations of a share of 1,000 draws
        facts=(
            Fact(grid, grid, 1, 0, "the code of the fixed factor does not change"),
            Fact(lambda: np.c_[GRID, noise(120, 4)], grid, 1, 0, "noise beside good codes"),
            Fact(lambda: GRID[:, [0, 0, 1, 1, 2, 2]], grid, 1, 0, "copies are not noticed"),
            Fact(lambda: reflected(GRID), grid, 1, 0.01, "rotated: the differences still identify every factor"),
            Fact(
                constants, grid, 1 / 3, 0.07, "constants: chance, to three standard deviations of a share of 500 draws"
            ),
            Fact(lambda: noise(1000, 4), lambda: random_factors((2, 2), 1000, 1), 0.5, 0.1, "noise: about chance"),
        ),
        changes=dict.fromkeys(
            ("train_accuracy", "eval_accuracy"), "the regression is penalised and codes are not standardised"
        ),
        options={"train": 1000, "test": 500},
        oracle_options={"batch": 10, "train": 5000, "test": 5000},
    ),
    "downstream_lr": Law(
        ranges=dict.fromkeys(DOWNSTREAM, UNIT),
        # The solver stops before it converges, so reordered codes, summed in another order, may select another penalty.
        tolerances={**REORDERED, "codes": 0.05, "affine": 0.0},
        oracle=lambda c, v: oracle.downstream(oracle.logistic_cv, c, v),
        oracle_tolerance=0.02,  # one of 36 points for one of three factors is .009
        facts=(
            Fact(lambda: 4 * BITS - 2, lambda: BITS, 1, 0, "two values, separable"),
            Fact(lambda: np.c_[4 * BITS - 2, noise(120, 3)], lambda: BITS, 1, 0, "noise beside good codes"),
            Fact(constants, grid, MOST_COMMON_SHARE, 1e-12, "constants: one value is always predicted"),
        ),
        changes=dict.fromkeys(DOWNSTREAM, "the regression is penalised and codes are not standardised"),
        options={"sizes": SIZES},
        oracle_options={"sizes": (36,)},
    ),
    "downstream_gbt": Law(
        ranges=dict.fromkeys(DOWNSTREAM, UNIT),
        # Equally good cuts are tried in another order, and rounding moves points across a cut.
        tolerances={**REORDERED, "codes": 0.05, "affine": 0.05},
        oracle=lambda c, v: oracle.downstream(oracle.boosted, c, v),
        oracle_tolerance=0.01,
        facts=(
            Fact(grid, grid, 1, 0, "every value has its interval"),
            Fact(lambda: np.c_[GRID, noise(120, 2)], grid, 1, 0, "noise beside good codes"),
            Fact(constants, grid, MOST_COMMON_SHARE, 1e-12, "constants: one value is always predicted"),
        ),
        options={"sizes": SIZES},
        oracle_options={"sizes": (36,)},
    ),
}
