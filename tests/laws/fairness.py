"""Law of the fairness of predictions."""

from __future__ import annotations

import itertools

import numpy as np

from laws.base import UNIT, Fact, Law
from oracles import fairness as oracle
from support.known_codes import GRID, Array, reflected, table

PAIRS = [f"pred{i}:sens{j}" for i, j in itertools.permutations(range(3), 2)]
ONE = [
    f"{own}{i}:{how}_{other}"
    for own, other in (("pred", "sens"), ("sens", "pred"))
    for i in range(3)
    for how in ("mean", "max")
]
BOTH = [
    f"{outer}_{own}:{inner}_{other}"
    for own, other in (("pred", "sens"), ("sens", "pred"))
    for outer in ("mean", "max")
    for inner in ("mean", "max")
]
KEYS = [f"{prefix}:{key}" for prefix in ("mean_fairness", "max_fairness") for key in (*PAIRS, *ONE, *BOTH)]
BITS = table(2, 2)
# The first bit shows only where the second is 0: a reader of it says both values there and one value elsewhere.
HALF = np.where(BITS[:, 1] == 0, BITS[:, 0], 2)[:, None]


def grid() -> Array:
    return GRID


def bits() -> Array:
    return BITS


LAWS: dict[str, Law] = {
    "fairness": Law(
        ranges=dict.fromkeys(KEYS, UNIT),
        # Other rows are drawn when rows or factors are reordered, and the trees saw 9 in 10 rows of the table only;
        # the worst of all pairs moves most. Rounding may move a cut across a row when codes are mapped.
        tolerances={"rows": 0.15, "codes": 0.05, "factors": 0.15, "affine": 0.05},
        oracle=lambda c, v: oracle.fairness(c, v),
        oracle_tolerance=0.05,
        facts=(
            Fact(grid, grid, 0, 0, "perfect: predictions without error change with their factor only"),
            Fact(lambda: reflected(GRID), grid, 0, 0.05, "rotated: nearly without error"),
            Fact(lambda: np.full(GRID.shape, 0.3), grid, 0, 0, "constants: one prediction for all"),
            # .25 from each distribution to the average; .06: three spreads of a share of 100 draws, halved
            Fact(lambda: HALF, bits, 0.25, 0.06, "(1/2, 1/2) and (1, 0) about (3/4, 1/4)", "mean_fairness:pred0:sens1"),
            Fact(lambda: HALF, bits, 0, 0, "the second bit shows always", "mean_fairness:pred1:sens0"),
        ),
        options={"train": 300, "test": 100},
        oracle_options={"train": 1000, "test": 200},
    )
}
