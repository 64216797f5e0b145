"""Degenerate codes and factors, and which metrics refuse them with which words; all others must score them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from support.known_codes import GRID, NOISY, Array, noise, table


class Edge(NamedTuple):
    """A case: what is unusual about it, with training points and test points."""

    what: str
    codes: Array
    factors: Array
    test_codes: Array
    test_factors: Array


def same(what: str, codes: Array, factors: Array = GRID) -> Edge:
    return Edge(what, codes, factors, codes, factors)


ONE_MISSING = GRID[:, 0] != 4  # the rows in which the first factor does not take its last value
FEW = table(2, 2, 2)
EDGES: dict[str, Edge] = {
    "constant code": same("one code dimension is exactly constant", np.c_[NOISY, np.full(120, 0.3)]),
    "all codes constant": same("all code dimensions are constant", np.full((120, 3), 0.3)),
    "one code": same("there is only one code dimension", NOISY[:, :1]),
    "one factor": same("there is only one factor", NOISY, GRID[:, :1]),
    "single-valued factor": same("a factor takes one value only", NOISY, GRID * [1, 0, 1]),
    "duplicated codes": same("a code dimension occurs twice", NOISY[:, [0, 0, 1, 2]]),
    "class missing from test": Edge(
        "a value occurs in training only", NOISY, GRID, NOISY[ONE_MISSING], GRID[ONE_MISSING]
    ),
    "class only in test": Edge("a value occurs in the test only", NOISY[ONE_MISSING], GRID[ONE_MISSING], NOISY, GRID),
    "nan": same("a code is NaN", np.where(np.arange(120)[:, None] == 7, np.nan, NOISY)),
    "infinity": same("a code is infinite", np.where(np.arange(120)[:, None] == 7, np.inf, NOISY)),
    "fewer rows than bins": same("there are 16 rows and 20 bins", noise(16, 3), np.repeat(FEW, 2, axis=0)),
    "non-integer factors": same("factors are not whole numbers", NOISY, GRID + 0.5),
    "negative factors": same("labels are negative", NOISY, -3 * GRID - 1),
    "float labels": same("labels are floats that hold whole numbers", NOISY, GRID.astype(np.float32)),
    "huge codes": same("codes are of the order of 1e12", 1e12 * NOISY),
    "tiny codes": same("codes are of the order of 1e-12", 1e-12 * NOISY),
}

FINITE = "Codes must be finite"
LABELLED = (
    "beta_vae", "factor_vae", "mig", "modularity", "dci", "sap", "explicitness", "irs", "downstream_lr",
    "downstream_gbt", "mcc", "infomec", "dcimig", "jemmig", "mig_sup", "fairness",
)  # fmt: skip
EVERYONE = (*LABELLED, "unsupervised")
TWO_CODES, TWO_FACTORS = "Codes must have at least 2 columns", "Factors must have at least 2 columns"
REFUSES: Mapping[str, Mapping[str, str]] = {
    "one code": dict.fromkeys(("mig", "sap", "unsupervised", "dci", "jemmig"), TWO_CODES),
    "one factor": dict.fromkeys(("beta_vae", "modularity", "dci", "dcimig", "mig_sup", "fairness"), TWO_FACTORS),
    "single-valued factor": dict.fromkeys(LABELLED, "Every factor must take at least 2 values"),
    "nan": dict.fromkeys(EVERYONE, FINITE),
    "infinity": dict.fromkeys(EVERYONE, FINITE),
    "non-integer factors": dict.fromkeys(LABELLED, "Factors must be integers"),
}


def given_arrays(edge: str) -> dict[str, Array]:
    """The arrays of a case under the names of metric parameters."""
    case = EDGES[edge]
    return {key: getattr(case, key) for key in ("codes", "factors", "test_codes", "test_factors")}
