"""The law of DCI."""

from __future__ import annotations

import numpy as np

from laws.base import UNIT, Fact, Law
from oracles import trees as oracle
from support.known_codes import CODE_SIZES, GRID, factor_grid, noise, random_factors

KINDS = ("", "_mean", "_per_tree")


def two_bits_per_factor() -> np.ndarray:
    """Return two codes of one bit for each factor of four values: both are equally needed, and no other code is."""
    factors = factor_grid(4, 4)
    return np.stack([factors[:, 0] // 2, factors[:, 0] % 2, factors[:, 1] // 2, factors[:, 1] % 2], axis=1)


LAWS: dict[str, Law] = {
    "dci": Law(
        ranges={f"{name}{kind}": UNIT for name in ("disentanglement", "completeness") for kind in KINDS}
        | {"informativeness_train": UNIT, "informativeness_test": UNIT},
        # Sums over rows are exact and cuts depend only on the order of values, so reordered rows and affine maps change
        # only the rounding of leaf values. Reordered columns break ties between equally good cuts in another way; over
        # seeds this changes scores by .011.
        tolerances={"rows": 1e-6, "codes": 0.02, "factors": 1e-12, "affine": 1e-6},
        oracle=oracle.disentanglement,
        oracle_tolerance=0.02,  # ties again: scikit-learn differs by .015 between seeds on the 36 rows of this test
        facts=(
            Fact(lambda: GRID, lambda: GRID, 1, 1e-6, "each factor is one code"),
            Fact(lambda: GRID, lambda: GRID, 1, 1e-6, "each factor is one code", "completeness"),
            Fact(lambda: GRID, lambda: GRID, 1, 0, "each factor is one code", "informativeness_test"),
            Fact(lambda: -7.0 * GRID[:, [2, 0, 1]] ** 3, lambda: GRID, 1, 1e-6, "monotone maps, permuted"),
            Fact(lambda: np.c_[GRID, np.ones(120)], lambda: GRID, 1, 1e-6, "an unused code has weight 0"),
            Fact(lambda: np.ones((120, 3)), lambda: GRID, 0, 0, "nothing is used"),
            Fact(lambda: np.ones((120, 3)), lambda: GRID, 0, 0, "nothing is used", "completeness"),
            Fact(
                lambda: np.ones((120, 3)),
                lambda: GRID,
                (1 / 5 + 1 / 4 + 1 / 6) / 3,
                1e-12,
                "chance on a complete table",
                "informativeness_test",
            ),
            Fact(
                two_bits_per_factor, lambda: factor_grid(4, 4), 1, 1e-6, "two codes per factor, each of one factor only"
            ),
            Fact(
                two_bits_per_factor,
                lambda: factor_grid(4, 4),
                0.5,
                0.01,
                "two of four codes, equally by random ties",
                "completeness",
            ),
            Fact(lambda: noise(120, 3), lambda: GRID, 0, 0.02, "noise: all codes serve all factors equally"),
            Fact(
                lambda: random_factors(CODE_SIZES["shapes3d"][2:5], 500, 0),
                lambda: random_factors(CODE_SIZES["shapes3d"][2:5], 500, 0),
                1,
                1e-6,
                "random factors are slightly informative about each other; the own code determines its factor",
            ),
        ),
    )
}
