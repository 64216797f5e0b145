"""Laws of the metrics that read factors from codes by linear models or boosted trees."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from laws.base import UNIT, Fact, Law
from oracles import linear as oracle
from support.known_codes import CODE_SIZES, GRID, Array, drawn, noise, reflected, table

BITS = table(2, 2, 30)[:, :2]
COMMONEST = (1 / 5 + 1 / 4 + 1 / 6) / 3  # of each factor of GRID, every value being equally common
SIZES = (30, 120)
PARTS = [f"{how}_{part}_accuracy" for how in ("mean", "min") for part in ("train", "test")]
FACTORS = [f"{part}_accuracy_factor_{j}" for part in ("train", "test") for j in range(3)]
DOWNSTREAM = [*(f"{size}:{key}" for size in SIZES for key in (*PARTS, *FACTORS)), *PARTS[:2]]
# Reordered rows bring others among the first 30 and into the folds: no law at all. All rows are tested in
# test_linear_metrics.py.
ORDERED = {"rows": 1.0, "factors": 1e-12}


def grid() -> Array:
    return GRID


def constants() -> Array:
    return np.full(GRID.shape, 0.3)


def perfect(name: str) -> Callable[[], Array]:
    return lambda: drawn(CODE_SIZES[name], 10_000, 0) - (np.array(CODE_SIZES[name]) - 1) / 2


def sampled(name: str) -> Callable[[], Array]:
    return lambda: drawn(CODE_SIZES[name], 10_000, 0)


TABLE = "disentanglement_lib at 86a644d, 10,000 points to learn from and 5,000 to test"
LAWS: dict[str, Law] = {
    "explicitness": Law(
        ranges=dict.fromkeys(("explicitness_score_train", "explicitness_score_test"), UNIT),
        # Rounding moves where the regression stops, by less than its tolerance of 1e-4, and points closer than that
        # swap ranks: one of 2,000 pairs moves the mean by 1e-5.
        tolerances=dict.fromkeys(("rows", "codes", "factors", "affine"), 1e-4),
        oracle=lambda c, v: oracle.explicitness(c, v, c, v),
        oracle_tolerance=1e-4,  # as above
        facts=(
            Fact(lambda: BITS - 0.5, lambda: BITS, 1, 0, "two values, told apart"),
            Fact(lambda: reflected(BITS), lambda: BITS, 1, 0, "rotated: still told linearly"),
            Fact(lambda: np.c_[BITS, noise(120, 3)], lambda: BITS, 1, 0, "noise beside good codes"),
            Fact(constants, grid, 0.5, 0, "constants: all ties"),
            # a spread of 1 / sqrt(12 n_c) for each of about 5 values, and what 4 weights a value learn by heart
            Fact(lambda: noise(10_000, 3), lambda: drawn((5, 4, 6), 10_000, 1), 0.5, 0.03, "noise: about chance"),
            # .005: the table is of test points, here it is the training points' score
            *(
                Fact(perfect(name), sampled(name), expected, 0.005, f"{name}: {TABLE}")
                for name, expected in {"dsprites": 0.987, "smallnorb": 1.0, "shapes3d": 1.0, "mpi3d": 0.991}.items()
            ),
        ),
    ),
    "beta_vae": Law(
        ranges=dict.fromkeys(("train_accuracy", "eval_accuracy"), UNIT),
        # Other rows are drawn when rows or factors are reordered; codes in another order are added up in another order.
        tolerances={"rows": 0.05, "codes": 0.005, "factors": 0.05, "affine": 0.005},
        oracle=lambda c, v: oracle.beta_vae(c, v, 10, 1000, 1000),
        oracle_tolerance=0.05,  # two spreads of a share of 1,000 draws
        facts=(
            Fact(grid, grid, 1, 0, "the code of the fixed factor does not change"),
            Fact(lambda: np.c_[GRID, noise(120, 4)], grid, 1, 0, "noise beside good codes"),
            Fact(lambda: GRID[:, [0, 0, 1, 1, 2, 2]], grid, 1, 0, "copies are not noticed"),
            Fact(lambda: reflected(GRID), grid, 1, 0.01, "rotated: every factor leaves its own trace"),
            Fact(constants, grid, 1 / 3, 0.07, "constants: chance, three spreads of a share of 500 draws"),
            Fact(lambda: noise(1000, 4), lambda: drawn((2, 2), 1000, 1), 0.5, 0.1, "noise: about chance"),
        ),
        changes=dict.fromkeys(
            ("train_accuracy", "eval_accuracy"), "the regression is penalised and codes are not standardised"
        ),
        options={"train": 1000, "test": 500},
        oracle_options={"batch": 10, "train": 5000, "test": 5000},
    ),
    "downstream_lr": Law(
        ranges=dict.fromkeys(DOWNSTREAM, UNIT),
        # Iterations stop before they converge: codes added up in another order may end at another penalty.
        tolerances={**ORDERED, "codes": 0.05, "affine": 0.0},
        oracle=lambda c, v: oracle.downstream(oracle.logistic_cv, c, v),
        oracle_tolerance=0.02,  # one of 36 points for one of three factors is .009
        facts=(
            Fact(lambda: 4 * BITS - 2, lambda: BITS, 1, 0, "two values, told apart"),
            Fact(lambda: np.c_[4 * BITS - 2, noise(120, 3)], lambda: BITS, 1, 0, "noise beside good codes"),
            Fact(constants, grid, COMMONEST, 1e-12, "constants: one value is always predicted"),
        ),
        changes=dict.fromkeys(DOWNSTREAM, "the regression is penalised and codes are not standardised"),
        options={"sizes": SIZES},
        oracle_options={"sizes": (36,)},
    ),
    "downstream_gbt": Law(
        ranges=dict.fromkeys(DOWNSTREAM, UNIT),
        # Features are tried in another order where two cuts are equally good, and rounding moves points near a cut.
        tolerances={**ORDERED, "codes": 0.05, "affine": 0.05},
        oracle=lambda c, v: oracle.downstream(oracle.boosted, c, v),
        oracle_tolerance=0.01,
        facts=(
            Fact(grid, grid, 1, 0, "every value has its interval"),
            Fact(lambda: np.c_[GRID, noise(120, 2)], grid, 1, 0, "noise beside good codes"),
            Fact(constants, grid, COMMONEST, 1e-12, "constants: one value is always predicted"),
        ),
        options={"sizes": SIZES},
        oracle_options={"sizes": (36,)},
    ),
}
