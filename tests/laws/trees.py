"""The law of DCI."""

from __future__ import annotations

import numpy as np

from laws.base import UNIT, Fact, Law
from oracles import trees as oracle
from support.known_codes import CODE_SIZES, GRID, factor_grid, noise, random_factors

KINDS = ("", "_mean", "_per_tree")


def two_bits_per_factor() -> np.ndarray:
    """Return two binary latents for each factor with four values. Both are needed equally, and no other latent is."""
    factors = factor_grid(4, 4)
    return np.stack([factors[:, 0] // 2, factors[:, 0] % 2, factors[:, 1] // 2, factors[:, 1] % 2], axis=1)


LAWS: dict[str, Law] = {
    "dci": Law(
        ranges={f"{name}{kind}": UNIT for name in ("disentanglement", "completeness") for kind in KINDS}
        | {"informativeness_train": UNIT, "informativeness_test": UNIT},
        # Sums over rows are exact and cuts depend only on the order of values, so reordered rows and affine maps change
        # only the rounding of leaf values. Reordered columns break ties between equally good cuts in a different way.
        # Between seeds, ties change scores by 0.011.
        tolerances={"rows": 1e-6, "codes": 0.02, "factors": 1e-12, "affine": 1e-6},
        oracle=oracle.disentanglement,
        oracle_tolerance=0.02,  # because of ties: scores of scikit-learn differ by 0.015 between seeds on 36 rows
        facts=(
            Fact(lambda: GRID, lambda: GRID, 1, 1e-6, "each factor is one latent"),
            Fact(lambda: GRID, lambda: GRID, 1, 1e-6, "each factor is one latent", "completeness"),
            Fact(lambda: GRID, lambda: GRID, 1, 0, "each factor is one latent", "informativeness_test"),
            Fact(lambda: -7.0 * GRID[:, [2, 0, 1]] ** 3, lambda: GRID, 1, 1e-6, "monotonic maps in a different order"),
            Fact(lambda: np.c_[GRID, np.ones(120)], lambda: GRID, 1, 1e-6, "an unused latent has weight 0"),
            Fact(lambda: np.ones((120, 3)), lambda: GRID, 0, 0, "no latent is used"),
            Fact(lambda: np.ones((120, 3)), lambda: GRID, 0, 0, "no latent is used", "completeness"),
            Fact(
                lambda: np.ones((120, 3)),
                lambda: GRID,
                (1 / 5 + 1 / 4 + 1 / 6) / 3,
                1e-12,
                "chance on a complete table",
                "informativeness_test",
            ),
            Fact(
                two_bits_per_factor,
                lambda: factor_grid(4, 4),
                1,
                1e-6,
                "two latents per factor, each for one factor only",
            ),
            Fact(
                two_bits_per_factor,
                lambda: factor_grid(4, 4),
                0.5,
                0.01,
                "two of four latents, equally because of random ties",
                "completeness",
            ),
            Fact(
                lambda: noise(120, 3), lambda: GRID, 0, 0.02, "noise: all latents are equally important to all factors"
            ),
            Fact(
                lambda: random_factors(CODE_SIZES["shapes3d"][2:5], 500, 0),
                lambda: random_factors(CODE_SIZES["shapes3d"][2:5], 500, 0),
                1,
                1e-6,
                "random factors are slightly informative about each other, but its own latent determines each factor",
            ),
        ),
    )
}
