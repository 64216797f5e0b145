"""Degenerate codes and factors, and the errors that metrics raise for them. All other metrics must score them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from support.known_codes import GRID, NOISY, Array, factor_grid, noise


class Edge(NamedTuple):
    """A degenerate case: a description, training points and test points."""

    what: str
    codes: Array
    factors: Array
    test_codes: Array
    test_factors: Array


def with_same_test_points(what: str, codes: Array, factors: Array = GRID) -> Edge:
    """Return a case whose test points are its training points."""
    return Edge(what, codes, factors, codes, factors)


ONE_MISSING = GRID[:, 0] != 4  # rows without the last value of the first factor
FEW = factor_grid(2, 2, 2)
EDGES: dict[str, Edge] = {
    "constant code": with_same_test_points("one code dimension is exactly constant", np.c_[NOISY, np.full(120, 0.3)]),
    "all codes constant": with_same_test_points("all code dimensions are constant", np.full((120, 3), 0.3)),
    "one code": with_same_test_points("there is only one code dimension", NOISY[:, :1]),
    "one factor": with_same_test_points("there is only one factor", NOISY, GRID[:, :1]),
    "single-valued factor": with_same_test_points("a factor takes only one value", NOISY, GRID * [1, 0, 1]),
    "duplicated codes": with_same_test_points("a code dimension occurs twice", NOISY[:, [0, 0, 1, 2]]),
    "class missing from test": Edge(
        "a value occurs only in training", NOISY, GRID, NOISY[ONE_MISSING], GRID[ONE_MISSING]
    ),
    "class only in test": Edge(
        "a value occurs only in the test points", NOISY[ONE_MISSING], GRID[ONE_MISSING], NOISY, GRID
    ),
    "nan": with_same_test_points("a code is NaN", np.where(np.arange(120)[:, None] == 7, np.nan, NOISY)),
    "infinity": with_same_test_points("a code is infinite", np.where(np.arange(120)[:, None] == 7, np.inf, NOISY)),
    "fewer rows than bins": with_same_test_points(
        "there are 16 rows and 20 bins", noise(16, 3), np.repeat(FEW, 2, axis=0)
    ),
    "non-integer factors": with_same_test_points("factors are not integers", NOISY, GRID + 0.5),
    "missing labels": with_same_test_points(
        "some labels are missing (NaN)", NOISY, np.where(np.arange(360).reshape(120, 3) % 41 == 0, np.nan, GRID)
    ),
    "negative factors": with_same_test_points("labels are negative", NOISY, -3 * GRID - 1),
    "float labels": with_same_test_points(
        "labels are floating-point numbers with integer values", NOISY, GRID.astype(np.float32)
    ),
    "huge codes": with_same_test_points("codes are of the order of 1e12", 1e12 * NOISY),
    "tiny codes": with_same_test_points("codes are of the order of 1e-12", 1e-12 * NOISY),
}

FINITE = "Codes must be finite"
LABELLED = (
    "beta_vae", "factor_vae", "mig", "modularity", "dci", "sap", "explicitness", "irs", "downstream_lr",
    "downstream_gbt", "mcc", "infomec", "dcimig", "jemmig", "mig_sup", "fairness", "strong_downstream",
    "reduced_downstream", "unified", "z_max_var", "dci_es", "omes", "snc", "nk", "aam", "flatness", "d_lsbd",
    "linearity",
)  # fmt: skip
ALL_METRICS = (*LABELLED, "unsupervised", "factorised_support")
WITH_TWO_CODES = (
    "mig", "sap", "unsupervised", "dci", "jemmig", "reduced_downstream", "unified", "dci_es", "nk",
    "factorised_support", "aam",
)  # fmt: skip
WITH_TWO_FACTORS = (
    "beta_vae", "modularity", "dci", "dcimig", "mig_sup", "fairness", "strong_downstream", "reduced_downstream",
    "unified", "z_max_var", "dci_es", "omes", "flatness", "linearity",
)  # fmt: skip
TWO_CODES, TWO_FACTORS = "Codes must have at least 2 columns", "Factors must have at least 2 columns"
EXPECTED_ERRORS: Mapping[str, Mapping[str, str]] = {
    "one code": dict.fromkeys(WITH_TWO_CODES, TWO_CODES),
    "one factor": dict.fromkeys(WITH_TWO_FACTORS, TWO_FACTORS),
    "single-valued factor": dict.fromkeys(LABELLED, "Every factor must take at least 2 values"),
    "nan": dict.fromkeys(ALL_METRICS, FINITE),
    "infinity": dict.fromkeys(ALL_METRICS, FINITE),
    "non-integer factors": dict.fromkeys(LABELLED, "Factors must be integers"),
}


def edge_arrays(edge: str) -> dict[str, Array]:
    """Return the arrays of a case by parameter name."""
    case = EDGES[edge]
    return {key: getattr(case, key) for key in ("codes", "factors", "test_codes", "test_factors")}
