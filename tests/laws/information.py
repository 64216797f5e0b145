"""Laws of the metrics that measure information, correlation and robustness."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from laws.base import LENGTH, UNIT, Fact, Law
from oracles import information as oracle
from support.known_codes import CODE_SIZES, GRID, Array, factor_grid, noise, random_factors

EXACT_TOLERANCES = {"rows": 1e-12, "codes": 1e-12, "factors": 1e-12, "affine": 1e-12}
# InfoE is computed by a solver that stops at a gradient of 1e-4. Where it stops depends on the order of additions,
# most of all if classes are separable, because the loss then has no minimum.
SOLVER_TOLERANCES = {"rows": 4e-3, "codes": 4e-3, "factors": 4e-3, "affine": 4e-3}
TABLE = "disentanglement_lib at 86a644d, 10,000 examples"
SQUARE = factor_grid(2, 2)  # two factors with two values each
ROTATED_SQUARE = np.c_[SQUARE.sum(axis=1), SQUARE[:, 0] - SQUARE[:, 1]]  # rotated by 45 degrees
# One latent with a different number for each pair of values
MERGED = np.ravel_multi_index(tuple(factor_grid(3, 3).T), (3, 3))[:, None]
LOG20 = math.log(20)


def grid() -> Array:
    return GRID


def duplicated_codes() -> Array:
    return GRID[:, [0, 0, 1, 1, 2, 2]]


def constant_codes() -> Array:
    return np.full(GRID.shape, 0.3)


def square() -> Array:
    return SQUARE


def rotated_square() -> Array:
    return ROTATED_SQUARE


def merged_codes() -> Array:
    return MERGED


def grid_3_by_3() -> Array:
    return factor_grid(3, 3)


def perfect_of_equal_range(sizes: tuple[int, ...]) -> Callable[[], Array]:
    """Return a function that makes perfect codes whose latents all have the same range, as in the published table."""
    return lambda: random_factors(sizes, 10_000, 0) / np.array(sizes)


def factors_of_sizes(sizes: tuple[int, ...]) -> Callable[[], Array]:
    return lambda: random_factors(sizes, 10_000, 0)


def noise_codes() -> Array:
    return noise(10_000, 10)


def even_factors() -> Array:
    return random_factors((4, 4), 10_000, 1)


def mean_constant_jemmig() -> float:
    """Return the score of constant codes, whose joint entropy is that of the factor and whose information is 0."""
    return sum(LOG20 / (math.log(size) + LOG20) for size in (5, 4, 6)) / 3


SIZES = CODE_SIZES["dsprites"]
# In 20 equal-width bins, a perfect latent contains a fraction of 0.812 of the information about a factor with 40
# values, and 0.85 for 32 values (published figures). Its information about the second-best factor is only the bias
# (values - 1)(values - 1) / 2n.
BEST = [math.log(3), math.log(6), 0.812 * math.log(40), 0.85 * math.log(32), 0.85 * math.log(32)]
BIAS = [2 * 39 / 2e4, 5 * 39 / 2e4, 19 * 31 / 2e4, 19 * 39 / 2e4, 19 * 39 / 2e4]
TOTAL_ENTROPY = sum(math.log(size) for size in SIZES)
DCIMIG_CEILING = (sum(BEST) - sum(BIAS)) / TOTAL_ENTROPY
MIG_SUP_CEILING = sum(
    best / math.log(size) - bias / math.log(32 if size == 40 else 40)
    for best, bias, size in zip(BEST, BIAS, SIZES, strict=True)
) / len(SIZES)

LAWS: dict[str, Law] = {
    "irs": Law(
        ranges={"avg_score": UNIT, "num_active_dims": LENGTH},
        tolerances=EXACT_TOLERANCES,
        changes={"avg_score": "latents are weighted by their largest deviation"},
        oracle=lambda c, v: oracle.irs(c.tolist(), v.tolist()),
        oracle_tolerance=1e-12,
        facts=(
            Fact(grid, grid, 1, 0, "every latent is a function of one factor"),
            Fact(duplicated_codes, grid, 1, 0, "two copies of each latent"),
            Fact(constant_codes, grid, 0, 0, "no latent varies"),
            Fact(
                constant_codes, grid, 0, 0, "the variance of a constant 0.3 is only a rounding error", "num_active_dims"
            ),
            Fact(lambda: np.c_[GRID, np.full(120, 0.3)], grid, 3, 0, "a constant is left out", "num_active_dims"),
            Fact(lambda: np.c_[GRID, np.full(120, 0.3)], grid, 1, 0, "a constant is left out"),
            Fact(rotated_square, square, 0.5, 1e-12, "rotated: half of its range remains if either factor is fixed"),
            *(
                Fact(
                    perfect_of_equal_range(CODE_SIZES[data]),
                    factors_of_sizes(CODE_SIZES[data]),
                    expected,
                    0.001,
                    f"perfect {data}: {TABLE}",
                )
                for data, expected in zip(CODE_SIZES, (0.985, 1.0, 0.980, 1.0, 0.990), strict=True)
            ),
            *(  # 0.03 is three standard deviations over seeds, of which 0.01 is due to the maximum of 10,000 deviations
                Fact(noise_codes, factors_of_sizes(CODE_SIZES[data]), expected, 0.03, f"noise {data}: {TABLE}")
                for data, expected in zip(CODE_SIZES, (0.376, 0.371, 0.364, 0.362, 0.361), strict=True)
            ),
        ),
    ),
    "mcc": Law(
        ranges={"mcc_pearson": UNIT, "mcc_spearman": UNIT},
        tolerances=EXACT_TOLERANCES,
        oracle=lambda c, v: oracle.mcc(c.tolist(), v.tolist()),
        oracle_tolerance=1e-12,
        facts=(
            Fact(lambda: -GRID[:, ::-1], grid, 1, 1e-12, "a different order and sign", "mcc_pearson"),
            Fact(duplicated_codes, grid, 1, 1e-12, "two copies of each latent", "mcc_pearson"),
            Fact(constant_codes, grid, 0, 0, "constants", "mcc_pearson"),
            Fact(constant_codes, grid, 0, 0, "constants", "mcc_spearman"),
            Fact(lambda: GRID[:, :1], grid, 1 / 3, 1e-12, "one latent for three factors", "mcc_pearson"),
            Fact(rotated_square, square, math.sqrt(0.5), 1e-12, "rotated by 45 degrees", "mcc_pearson"),
            Fact(
                lambda: np.array([[0], [3], [1], [4], [2]]),
                lambda: factor_grid(5),
                0.5,
                1e-12,
                "reordered values",
                "mcc_pearson",
            ),
            Fact(
                lambda: factor_grid(3, 3) ** 2,
                grid_3_by_3,
                4 / math.sqrt(52 / 3),
                1e-12,
                "(0, 1, 4) and (0, 1, 2)",
                "mcc_pearson",
            ),
            Fact(lambda: factor_grid(3, 3) ** 2, grid_3_by_3, 1, 1e-12, "monotone", "mcc_spearman"),
            Fact(
                noise_codes, even_factors, 0, 0.04, "noise: the largest of 10 correlations of size 0.01", "mcc_pearson"
            ),
        ),
    ),
    "infomec": Law(
        ranges={"InfoM": UNIT, "InfoE": UNIT, "InfoC": UNIT},
        tolerances=SOLVER_TOLERANCES,
        changes=dict.fromkeys(("InfoM", "InfoC"), "latents with less than a twentieth of the largest range are pruned"),
        oracle=lambda c, v: oracle.infomec(c.tolist(), v.tolist())[0],
        oracle_tolerance=1e-12,
        facts=(
            Fact(grid, grid, 1, 1e-12, "complete table", "InfoM"),
            Fact(grid, grid, 1, 1e-12, "complete table", "InfoC"),
            Fact(
                grid, grid, 1, 0.01, "separable by the scores -(c - v)^2, which are linear up to a common term", "InfoE"
            ),
            Fact(duplicated_codes, grid, 1, 1e-12, "two copies of each latent", "InfoM"),
            Fact(
                duplicated_codes,
                grid,
                0.4,
                1e-12,
                "two of six latents have half of the information about a factor each",
                "InfoC",
            ),
            Fact(merged_codes, grid_3_by_3, 0, 1e-12, "one latent is equally informative about two factors", "InfoM"),
            Fact(merged_codes, grid_3_by_3, 1, 0, "one latent", "InfoC"),
            Fact(rotated_square, square, 0, 1e-12, "rotated: each latent contains half of each factor", "InfoM"),
            Fact(rotated_square, square, 0, 1e-12, "rotated: each latent contains half of each factor", "InfoC"),
            Fact(rotated_square, square, 1, 0.01, "rotated: still linear", "InfoE"),
            *(Fact(constant_codes, grid, 0, 0, "constants", key) for key in ("InfoM", "InfoE", "InfoC")),
            Fact(noise_codes, even_factors, 0, 0.005, "noise: bias of 30 weights in 20,000 log 4", "InfoE"),
            # The two biases are chi-squared with at most 57 degrees of freedom: their mean difference is
            # 0.564 sqrt(2/57) of their sum.
            Fact(noise_codes, even_factors, 0.106, 0.05, "noise: a ratio of biases", "InfoM"),
        ),
    ),
    "dcimig": Law(
        ranges={"dcimig": UNIT},
        tolerances=EXACT_TOLERANCES,
        oracle=lambda c, v: oracle.dcimig(c.tolist(), v.tolist()),
        oracle_tolerance=1e-12,
        facts=(
            Fact(grid, grid, 1, 1e-12, "complete table"),
            Fact(duplicated_codes, grid, 1, 1e-12, "two copies of each latent"),
            Fact(constant_codes, grid, 0, 0, "constants"),
            Fact(merged_codes, grid_3_by_3, 0, 1e-12, "one latent is equally informative about two factors"),
            Fact(rotated_square, square, 0, 1e-12, "rotated: each latent contains half of each factor"),
            Fact(lambda: factor_grid(2, 8)[:, :1], lambda: factor_grid(2, 8), 1 / 4, 1e-12, "log 2 of log 2 + log 8"),
            Fact(noise_codes, even_factors, 0, 0.001, "noise: a gap between biases of 0.003 nats in 2 log 4"),
            Fact(
                factors_of_sizes(SIZES),
                factors_of_sizes(SIZES),
                DCIMIG_CEILING,
                0.004,
                "dSprites: the ceiling with 20 bins",
            ),
        ),
    ),
    "jemmig": Law(
        ranges={"jemmig": UNIT, "jemmig_nats": LENGTH},
        tolerances=EXACT_TOLERANCES,
        oracle=lambda c, v: oracle.jemmig(c.tolist(), v.tolist())[0],
        oracle_tolerance=1e-12,
        facts=(
            Fact(grid, grid, 1, 1e-12, "complete table"),
            Fact(grid, grid, 0, 1e-12, "complete table", "jemmig_nats"),
            Fact(constant_codes, grid, mean_constant_jemmig(), 1e-12, "constants have no entropy"),
            Fact(duplicated_codes, grid, mean_constant_jemmig(), 1e-12, "two copies of each latent: no gap"),
            Fact(
                rotated_square,
                square,
                2 * math.log(2),
                1e-12,
                "rotated: a joint entropy of 2 bits and no gap",
                "jemmig_nats",
            ),
            Fact(
                lambda: factor_grid(20, 20, 2)[:, :2],
                lambda: factor_grid(20, 20, 2)[:, 2:],
                0,
                1e-12,
                "uniform noise in all bins",
            ),
        ),
    ),
    "mig_sup": Law(
        ranges={"mig_sup": UNIT},
        tolerances=EXACT_TOLERANCES,
        oracle=lambda c, v: oracle.mig_sup(c.tolist(), v.tolist()),
        oracle_tolerance=1e-12,
        facts=(
            Fact(grid, grid, 1, 1e-12, "complete table"),
            Fact(duplicated_codes, grid, 1, 1e-12, "two copies of each latent"),
            Fact(constant_codes, grid, 0, 0, "no latent varies"),
            Fact(lambda: np.c_[GRID[:, :1], np.ones(120)], grid, 1, 1e-12, "a constant is left out"),
            Fact(grid, lambda: GRID[:, :2], 2 / 3, 1e-12, "one of three latents represents neither factor"),
            Fact(merged_codes, grid_3_by_3, 0, 1e-12, "one latent is equally informative about two factors"),
            Fact(rotated_square, square, 0, 1e-12, "rotated: each latent contains half of each factor"),
            Fact(noise_codes, even_factors, 0, 0.001, "noise: a gap between biases of 0.003 nats in log 4"),
            Fact(
                factors_of_sizes(SIZES),
                factors_of_sizes(SIZES),
                MIG_SUP_CEILING,
                0.004,
                "dSprites: the ceiling with 20 bins",
            ),
        ),
    ),
}
