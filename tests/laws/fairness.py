"""The law of fairness."""

from __future__ import annotations

import itertools

import numpy as np

from laws.base import UNIT, Fact, Law
from oracles import fairness as oracle
from support.known_codes import GRID, Array, factor_grid, reflected

PAIR_KEYS = [f"pred{i}:sens{j}" for i, j in itertools.permutations(range(3), 2)]
SINGLE_KEYS = [
    f"{own}{i}:{how}_{other}"
    for own, other in (("pred", "sens"), ("sens", "pred"))
    for i in range(3)
    for how in ("mean", "max")
]
AGGREGATE_KEYS = [
    f"{outer}_{own}:{inner}_{other}"
    for own, other in (("pred", "sens"), ("sens", "pred"))
    for outer in ("mean", "max")
    for inner in ("mean", "max")
]
KEYS = [
    f"{prefix}:{key}"
    for prefix in ("mean_fairness", "max_fairness")
    for key in (*PAIR_KEYS, *SINGLE_KEYS, *AGGREGATE_KEYS)
]
BITS = factor_grid(2, 2)
# The latent contains the first bit only if the second bit is 0. In that case a predictor of the first bit returns both
# values. Otherwise it always returns the same value.
FIRST_BIT_IF_SECOND_IS_0 = np.where(BITS[:, 1] == 0, BITS[:, 0], 2)[:, None]


def grid() -> Array:
    return GRID


def bits() -> Array:
    return BITS


LAWS: dict[str, Law] = {
    "fairness": Law(
        ranges=dict.fromkeys(KEYS, UNIT),
        # If rows or factors are reordered, different rows are drawn, and the trees are fitted to only 9 of 10 rows. The
        # worst pair changes most. If codes are mapped, rounding may move a cut across a row.
        tolerances={"rows": 0.15, "codes": 0.05, "factors": 0.15, "affine": 0.05},
        oracle=lambda c, v: oracle.fairness(c, v),
        oracle_tolerance=0.05,
        facts=(
            Fact(grid, grid, 0, 0, "perfect: predictions without error depend only on the predicted factor"),
            Fact(lambda: reflected(GRID), grid, 0, 0.05, "rotated: predictions nearly without error"),
            Fact(lambda: np.full(GRID.shape, 0.3), grid, 0, 0, "constants: the prediction is the same for all rows"),
            # Each distribution has a distance of 0.25 from the average. 0.06 is half of three standard deviations of a
            # relative frequency in 100 draws.
            Fact(
                lambda: FIRST_BIT_IF_SECOND_IS_0,
                bits,
                0.25,
                0.06,
                "(1/2, 1/2) and (1, 0) about (3/4, 1/4)",
                "mean_fairness:pred0:sens1",
            ),
            Fact(
                lambda: FIRST_BIT_IF_SECOND_IS_0,
                bits,
                0,
                0,
                "the latent always contains the second bit",
                "mean_fairness:pred1:sens0",
            ),
        ),
        # Four rows cannot be divided into training and evaluation rows. test_fairness.py tests disjoint draws.
        options={"train": 300, "test": 100, "draws": "reference"},
        oracle_options={"train": 1000, "test": 200},
    )
}
