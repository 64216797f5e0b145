"""Laws of OMES, SNC, NK, AAM, flatness, linearity, factorised support and DCI-ES."""

from __future__ import annotations

import math

import numpy as np

from laws.base import LENGTH, UNIT, Fact, Law
from laws.linear import BITS, CHANCE, constant_codes, grid
from oracles import peers as oracle
from support.known_codes import GRID, Array, factor_grid, noise, random_factors, reflected
from unbraid.metrics.dci_es import DEPTHS

SQUARE = factor_grid(4, 4)
RANK_CORRELATIONS = tuple(f"{kind}_rank_correlation_l{p}" for kind in ("factor", "global") for p in (1, 2))
CORNERS_KEY = "factor_rank_correlation_l2"
SQUARE_CORRELATION = float(np.corrcoef([2, 2, 2, 4.5, 4.5, 6], [2.5, 2.5, 2.5, 5.5, 5.5, 2.5])[0, 1])
EXACT = dict.fromkeys(("rows", "codes", "factors", "affine"), 1e-12)


def copies() -> Array:
    return GRID[:, [0, 0, 1, 1, 2, 2]]


def square() -> Array:
    return SQUARE


def perfect_omes() -> float:
    """Return the score of perfect codes of GRID. A factor with m values has the correlation -1 / (m - 1)."""
    own = [1 - 1 / (m - 1) for m in (5, 4, 6)]
    return sum(s * (1 - (1 - s) / 3) for s in own) / 3


def corners() -> Array:
    """Return the corners of a square in the order of the first factor, and a latent for the second factor."""
    return np.c_[np.array([[0, 0], [1, 0], [1, 1], [0, 1]])[SQUARE[:, 0]], SQUARE[:, 1]]


def turned() -> Array:
    """Return the two diagonal coordinates of a square grid."""
    return SQUARE @ np.array([[1, 1], [-1, 1]])


def two_values() -> Array:
    return factor_grid(2, 2)


LAWS: dict[str, Law] = {
    "aam": Law(
        ranges={"aam": UNIT},
        tolerances=EXACT,
        oracle=lambda c, v: oracle.aam(c.tolist(), v.tolist()),
        oracle_tolerance=1e-12,
        facts=(
            Fact(grid, grid, 1, 1e-12, "each factor is one latent"),
            Fact(copies, grid, 0, 1e-12, "two copies of each latent"),
            Fact(lambda: GRID[:, [0, 1, 2, 2]], grid, 2 / 3, 1e-12, "one of three factors has two equal latents"),
            Fact(
                lambda: np.c_[SQUARE, SQUARE[:, 0] // 2],
                square,
                3 / 4,
                1e-12,
                "half of one factor is in a third latent",
            ),
            Fact(constant_codes, grid, 0, 0, "no latent is informative"),
        ),
    ),
    "omes": Law(
        ranges=dict.fromkeys(("omes", "overlap_score", "multiple_encoding_score", "omes_signed"), UNIT),
        # If rows or factors are reordered, different pairs are drawn.
        tolerances={"rows": 0.05, "codes": 1e-9, "factors": 0.05, "affine": 1e-9},
        oracle=lambda c, v: oracle.omes(c.tolist(), v.tolist()),
        oracle_tolerance=0.02,
        facts=(
            Fact(grid, grid, perfect_omes(), 0.02, "each factor is one latent: S is 3/4, 2/3 and 4/5"),
            Fact(grid, grid, 1, 1e-12, "each factor is one latent", "omes_signed"),
            Fact(copies, grid, (1 + 5 / 6) / 2, 1e-12, "one of five other latents is a copy", "omes_signed"),
            Fact(lambda: factor_grid(2, 2), lambda: factor_grid(2, 2), 0, 1e-12, "two values: the correlation is -1"),
            Fact(constant_codes, grid, 0, 0, "no active latent"),
            Fact(
                lambda: noise(1000, 4), lambda: random_factors((2, 2), 1000, 1), (1 / 2 + 1 / 4) / 2, 0.03, "pure noise"
            ),
        ),
        oracle_options={"pairs": 100_000},
    ),
    "snc": Law(
        ranges={"snc": UNIT, "snc_train": UNIT},
        # Assignments of equal information or of equally many examples depend on the order of rows and columns.
        tolerances={"rows": 1e-12, "codes": 0.02, "factors": 0.02, "affine": 1e-12},
        oracle=lambda c, v: oracle.snc(c.tolist(), v.tolist()),
        oracle_tolerance=0.02,
        facts=(
            Fact(grid, grid, 1, 0, "each factor is one latent"),
            Fact(lambda: -7.0 * GRID[:, [2, 0, 1]] ** 3, grid, 1, 0, "monotonic maps in a different order"),
            Fact(lambda: np.array([3, 0, 5, 1, 4, 2])[GRID], grid, 1, 0, "the order of the values does not matter"),
            Fact(constant_codes, grid, CHANCE, 1e-12, "constants: one value is always predicted"),
            Fact(lambda: GRID[:, :1], grid, (1 + 1 / 4 + 1 / 6) / 3, 1e-12, "two factors have no latent"),
            Fact(
                lambda: 10 * SQUARE[:, [0, 1]] + SQUARE[:, [1, 0]], square, 1, 0, "a small addition of another factor"
            ),
        ),
    ),
    "nk": Law(
        ranges={"nk": (-1.0, 1.0), "mean_test_accuracy": UNIT, "mean_knockout_accuracy": UNIT},
        # Equally good cuts are tried in a different order, and rounding may move examples across a cut.
        tolerances={"rows": 0.05, "codes": 0.1, "factors": 0.1, "affine": 0.05},
        oracle=oracle.nk,
        oracle_tolerance=0.03,
        facts=(
            Fact(grid, grid, 1 - CHANCE, 1e-12, "each factor is one latent"),
            Fact(copies, grid, 0, 0, "two copies of each latent"),
            Fact(constant_codes, grid, 0, 0, "nothing is lost"),
            Fact(lambda: np.c_[GRID, noise(120, 2)], grid, 1, 0, "noise beside good latents", "mean_test_accuracy"),
        ),
    ),
    "factorised_support": Law(
        ranges={"fos_standardised": LENGTH, "fos": LENGTH},
        tolerances=dict.fromkeys(("rows", "codes", "factors", "affine"), 1e-9),
        oracle=lambda c, v: oracle.support_distance(c),
        oracle_tolerance=1e-9,
        facts=(
            Fact(grid, grid, 0, 0, "all combinations occur"),
            Fact(lambda: GRID[np.arange(120).repeat(np.arange(120) % 5 + 1)], grid, 0, 0, "some of them more often"),
            Fact(constant_codes, grid, 0, 0, "constants"),
            Fact(lambda: np.c_[:5, :5], grid, 8, 1e-12, "the nearest point to (0, 4) on the diagonal is (2, 2)", "fos"),
            Fact(lambda: np.c_[:5, :5], grid, 8 / 2, 1e-12, "the variance of 0, 1, 2, 3, 4 is 2"),
            Fact(lambda: np.c_[:5, :5, [3] * 5], grid, 8, 1e-12, "a constant adds nothing", "fos"),
        ),
        changes={"fos": "the codes are not standardised"},
        options={"batch": 512},  # one batch with all rows
    ),
    "flatness": Law(
        ranges=dict.fromkeys(("ave_flatness", "ave_flatness_l1", "ave_flatness_l2"), UNIT),
        # If rows or factors are reordered, different lines are drawn.
        tolerances={"rows": 0.05, "codes": 1e-9, "factors": 0.05, "affine": 1e-9},
        oracle=lambda c, v: oracle.flatness(c.tolist(), v.tolist()),
        oracle_tolerance=0.02,
        facts=(
            Fact(grid, grid, 1, 1e-12, "each factor is one latent"),
            Fact(lambda: reflected(GRID), grid, 1, 1e-9, "rotated: straight lines", "ave_flatness_l2"),
            Fact(constant_codes, grid, 0, 0, "codes do not change"),
            Fact(
                lambda: np.array([0, 2, 1, 3])[SQUARE],
                square,
                3 / 5,
                1e-12,
                "steps of 2, 1, 2 and, to the first, 3, which is left out; the width is 3",
            ),
            Fact(corners, square, (math.sqrt(2) / 3 + 1) / 2, 1e-9, "three sides of a square, and its diagonal"),
            Fact(corners, square, (2 / 3 + 1) / 2, 1e-9, "three sides of a square, and two sides", "ave_flatness_l1"),
        ),
        changes=dict.fromkeys(
            ("ave_flatness", "ave_flatness_l1", "ave_flatness_l2"), "lengths depend on the scale of each latent"
        ),
        oracle_options={"repeats": 2000},
    ),
    "linearity": Law(
        ranges={
            **dict.fromkeys(("linear_ratio", "axis_ratio", "axis_alignment"), UNIT),
            **dict.fromkeys(RANK_CORRELATIONS, (-1.0, 1.0)),
        },
        # If rows or factors are reordered, different lines and pairs are drawn.
        tolerances={"rows": 0.1, "codes": 1e-9, "factors": 0.1, "affine": 1e-9},
        oracle=lambda c, v: oracle.linearity(c.tolist(), v.tolist())["linear_ratio"],
        oracle_tolerance=0.02,
        facts=(
            Fact(grid, grid, 1, 1e-12, "each factor is one latent"),
            Fact(grid, grid, 1, 1e-12, "each factor is one latent", "axis_ratio"),
            Fact(grid, grid, 1, 1e-12, "each factor is one latent", "axis_alignment"),
            *(Fact(grid, grid, 1, 1e-12, "each factor is one latent", key) for key in RANK_CORRELATIONS if "l1" in key),
            Fact(grid, grid, 1, 1e-12, "each factor is one latent", "factor_rank_correlation_l2"),
            Fact(lambda: GRID**3, grid, 1, 1e-12, "a straight line with unequal steps"),
            Fact(lambda: reflected(GRID), grid, 1, 1e-9, "rotated: straight lines"),
            Fact(lambda: reflected(GRID), grid, 1, 1e-9, "rotated: distances are kept", "factor_rank_correlation_l2"),
            Fact(turned, square, 1, 1e-12, "diagonals are straight lines"),
            Fact(turned, square, 0, 1e-12, "both latents have half of the variance of a diagonal", "axis_ratio"),
            Fact(turned, square, 0, 1e-12, "both latents have half of the variance of a diagonal", "axis_alignment"),
            Fact(corners, square, ((3 * 1 / 2 - 1) / 2 + 1) / 2, 1e-9, "a square has two equal eigenvalues of three"),
            Fact(corners, square, 1, 1e-9, "the sides of the square are axes", "axis_alignment"),
            # Neighbours on the square have distance 1, and so have its first and its last corner. The three pairs of
            # distance 1 have rank 2, the two of distance 2 have rank 4.5, and the last has rank 6. The codes of four
            # pairs have rank 2.5 and the codes of two have rank 5.5.
            Fact(corners, square, (SQUARE_CORRELATION + 1) / 2, 0.02, "sides and diagonals of a square", CORNERS_KEY),
            Fact(lambda: SQUARE[:, :1], square, 1 / 2, 1e-12, "one latent, which only one factor changes"),
            Fact(constant_codes, grid, 0, 0, "codes do not change"),
            Fact(constant_codes, grid, 0, 0, "codes do not change", "axis_alignment"),
            *(Fact(constant_codes, grid, 0, 0, "codes do not change", key) for key in RANK_CORRELATIONS),
            Fact(two_values, two_values, 1, 1e-12, "two points lie on a line"),
            Fact(two_values, two_values, 0, 0, "no factor has three values", "factor_rank_correlation_l1"),
        ),
        changes=dict.fromkeys(
            ("linear_ratio", "axis_ratio", "axis_alignment", *RANK_CORRELATIONS),
            "variances and distances depend on the scale of each latent",
        ),
        oracle_options={"repeats": 2000},
    ),
    "dci_es": Law(
        ranges={
            **dict.fromkeys(("mean_informativeness", "disentanglement", "completeness", "informativeness"), UNIT),
            "explicitness": (-1.0, 1.0),
            "size": LENGTH,
        },
        # Equally good cuts are tried in a different order.
        tolerances={"rows": 0.1, "codes": 0.1, "factors": 0.05, "affine": 0.02},
        oracle=lambda c, v: oracle.mean_informativeness(c.tolist(), v.tolist(), DEPTHS),
        oracle_tolerance=0.03,
        facts=(
            Fact(lambda: BITS, lambda: BITS, 1, 0, "one cut is enough"),
            Fact(lambda: BITS, lambda: BITS, 1, 0, "one cut is enough", "explicitness"),
            # With one cut, half of the examples are wrong, and three quarters without a cut. From the second depth on
            # there are no errors. The depths range from 1 to 16.
            Fact(square, square, 1 - 0.25 / 15 / 0.75, 1e-12, "four values need two cuts"),
            Fact(square, square, 1 - 2 * 0.25 / 15 / 0.75, 1e-12, "four values need two cuts", "explicitness"),
            Fact(square, square, 1, 1e-6, "each factor is one latent", "disentanglement"),
            Fact(grid, grid, 1, 0, "deep trees make no errors", "informativeness"),
            Fact(copies, grid, 0.5, 0, "twice as many latents as factors", "size"),
            Fact(constant_codes, grid, 0, 1e-12, "constants: no tree is better than a constant prediction"),
            Fact(constant_codes, grid, 1, 1e-12, "constants: no tree is better than the first", "explicitness"),
        ),
    ),
}
