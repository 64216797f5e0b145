"""Laws of the metrics that fit no classifier, and of SAP."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from laws.base import LENGTH, UNIT, Fact, Law
from oracles import metrics as oracle
from support.known_codes import CODE_SIZES, GRID, Array, factor_grid, noise, random_factors


def perfect_codes(sizes: tuple[int, ...]) -> Callable[[], Array]:
    return lambda: random_factors(sizes, 10_000, 0) - (np.array(sizes) - 1) / 2


def factors_of_sizes(sizes: tuple[int, ...]) -> Callable[[], Array]:
    return lambda: random_factors(sizes, 10_000, 0)


def correlated_codes(rho: float) -> Array:
    """Return codes whose sample covariance is exactly [[1, rho], [rho, 1]]."""
    x = noise(500, 2) - noise(500, 2).mean(axis=0)
    white = x @ np.linalg.inv(np.linalg.cholesky(np.cov(x.T))).T
    return np.asarray(white @ np.linalg.cholesky(np.array([[1.0, rho], [rho, 1.0]])).T)


# Total correlation of three latents whose correlation matrix has the eigenvalues 0 (clipped), 1 and 2
CLIPPED_TOTAL_CORRELATION = -0.5 * (math.log(3 * 2.0**-52) + math.log(2))
TABLE = "disentanglement_lib at 86a644d, 10,000 examples"
LAWS: dict[str, Law] = {
    "mig": Law(
        ranges={"discrete_mig": UNIT},
        tolerances={"rows": 1e-12, "codes": 1e-12, "factors": 1e-12, "affine": 1e-12},
        oracle=lambda c, v: oracle.mig(c.tolist(), v.tolist()),
        oracle_tolerance=1e-12,
        facts=(
            Fact(lambda: GRID, lambda: GRID, 1, 1e-12, "complete table, at least as many bins as values"),
            Fact(lambda: GRID[:, [0, 0, 1, 1, 2, 2]], lambda: GRID, 0, 0, "two copies of each latent"),
            Fact(
                lambda: GRID[:, [0, 1, 2, 2]], lambda: GRID, 2 / 3, 1e-12, "one of three factors has two equal latents"
            ),
            Fact(
                lambda: noise(10_000, 10),
                lambda: random_factors((3, 4), 10_000, 1),
                0,
                0.002,
                "noise: the two biases cancel",
            ),
            Fact(lambda: np.zeros((120, 2)), lambda: GRID, 0, 0, "constants are not informative"),
            *(
                Fact(
                    perfect_codes(CODE_SIZES[data]),
                    factors_of_sizes(CODE_SIZES[data]),
                    expected,
                    0.001,
                    f"{data}: {TABLE}",
                )
                for data, expected in zip(CODE_SIZES, (0.896, 0.998, 0.819, 0.998, 0.942), strict=True)
            ),
        ),
    ),
    "modularity": Law(
        ranges={"modularity_score": UNIT},
        tolerances={"rows": 1e-12, "codes": 1e-12, "factors": 1e-12, "affine": 1e-12},
        oracle=lambda c, v: oracle.modularity(c.tolist(), v.tolist()),
        oracle_tolerance=1e-12,
        facts=(
            Fact(lambda: GRID, lambda: GRID, 1, 0, "complete table"),
            Fact(
                lambda: np.c_[GRID, np.ones(120)],
                lambda: GRID,
                3 / 4,
                1e-15,
                "a constant scores 0 and is included in the mean",
            ),
            Fact(lambda: np.c_[GRID[:, 0], GRID[:, 0]], lambda: GRID, 1, 0, "two latents of one factor"),
            Fact(
                lambda: np.ravel_multi_index(tuple(factor_grid(3, 3).T), (3, 3))[:, None],
                lambda: factor_grid(3, 3),
                0,
                1e-12,
                "one latent is equally informative about two factors",
            ),
            *(
                Fact(
                    perfect_codes(CODE_SIZES[data]),
                    factors_of_sizes(CODE_SIZES[data]),
                    expected,
                    0.001,
                    f"{data}: {TABLE}",
                )
                for data, expected in zip(CODE_SIZES, (1.0, 1.0, 0.999, 1.0, 1.0), strict=True)
            ),
            Fact(
                lambda: noise(10_000, 10),
                factors_of_sizes(CODE_SIZES["dsprites"]),
                0.677,
                0.04,
                f"noise seems modular because of bias, standard deviation 0.02 over seeds: {TABLE}",
            ),
        ),
    ),
    "sap": Law(
        ranges={"SAP_score": UNIT},
        # If rows are reordered, rounding may move an example across a decision boundary.
        tolerances={"rows": 0.01, "codes": 1e-12, "factors": 1e-12, "affine": 1e-12},
        oracle=lambda c, v: oracle.sap(c, v, c, v),
        oracle_tolerance=0.01,
        facts=(
            Fact(lambda: GRID[:, [0, 0, 1, 1, 2, 2]], lambda: GRID, 0, 0, "two copies of each latent"),
            Fact(
                lambda: 20 * factor_grid(2, 2, 9) - 10,
                lambda: factor_grid(2, 2, 9)[:, :2],
                0.5,
                0,
                "binary: an accuracy of 1 against chance",
            ),
            *(
                Fact(
                    perfect_codes(CODE_SIZES[data]),
                    factors_of_sizes(CODE_SIZES[data]),
                    expected,
                    0.01,
                    f"{data}: {TABLE}",
                )
                for data, expected in (("dsprites", 0.245), ("cars3d", 0.265), ("shapes3d", 0.246), ("mpi3d", 0.408))
            ),
        ),
        changes={"SAP_score": "the SVM is regularised and codes are not standardised"},
    ),
    "factor_vae": Law(
        ranges={"train_accuracy": UNIT, "eval_accuracy": UNIT, "num_active_dims": LENGTH},
        # If rows or factors are reordered, different rows are drawn.
        tolerances={"rows": 0.05, "codes": 1e-12, "factors": 0.05, "affine": 1e-12},
        oracle=lambda c, v: oracle.factor_vae(c.tolist(), v.tolist(), 10, 400, 400),
        oracle_tolerance=0.05,
        facts=(
            Fact(lambda: GRID, lambda: GRID, 1, 0, "the latent of the fixed factor has variance 0"),
            Fact(lambda: np.c_[GRID, noise(120, 4)], lambda: GRID, 1, 0, "noise latents get no votes"),
            Fact(lambda: np.c_[GRID, GRID[:, 0] / 1000], lambda: GRID, 1, 0, "a pruned copy is ignored"),
            Fact(lambda: GRID / 1000, lambda: GRID, 0, 0, "no active latent"),
            Fact(lambda: noise(1000, 4), lambda: random_factors((2, 2), 1000, 1), 0.5, 0.1, "noise: about chance"),
            Fact(lambda: np.c_[GRID, np.ones(120)], lambda: GRID, 3, 0, "a constant is not active", "num_active_dims"),
            Fact(
                lambda: 0.1 * GRID / GRID.std(0),
                lambda: GRID,
                3,
                0,
                "a standard deviation of 0.1 is above 0.05",
                "num_active_dims",
            ),
        ),
        # The halves of a table with 30 rows differ too much for a law. test_draws.py tests disjoint draws.
        options={"train": 1000, "test": 500, "draws": "reference"},
        oracle_options={"batch": 10, "train": 5000, "test": 5000},
    ),
    "unsupervised": Law(
        ranges={
            "gaussian_total_correlation": LENGTH,
            "gaussian_wasserstein_correlation": LENGTH,
            "gaussian_wasserstein_correlation_norm": LENGTH,
            "mutual_info_score": LENGTH,
        },
        tolerances={"rows": 1e-12, "codes": 1e-12, "factors": 0.0, "affine": 1e-12},
        oracle=lambda c, v: oracle.unsupervised(c)["gaussian_total_correlation"],
        oracle_tolerance=1e-12,
        facts=(
            Fact(lambda: GRID, lambda: GRID, 0, 1e-12, "complete table: uncorrelated"),
            Fact(lambda: correlated_codes(0.8), lambda: GRID, -0.5 * math.log(1 - 0.64), 1e-12, "-log(1 - r^2) / 2"),
            Fact(
                lambda: correlated_codes(0.8),
                lambda: GRID,
                4 - 2 * math.sqrt(1.8) - 2 * math.sqrt(0.2),
                1e-12,
                "eigenvalues 1 + r and 1 - r",
                "gaussian_wasserstein_correlation",
            ),
            Fact(
                lambda: np.c_[correlated_codes(0.8), np.full(500, 0.3)],
                lambda: GRID,
                -0.5 * math.log(0.36),
                1e-12,
                "an additional constant",
            ),
            Fact(
                lambda: GRID[:, [0, 0, 1]],
                lambda: GRID,
                CLIPPED_TOTAL_CORRELATION,
                1e-9,
                "a copy: a clipped eigenvalue",
            ),
            Fact(
                lambda: factor_grid(3, 3)[:, [0, 0, 1]],
                lambda: GRID,
                math.log(3) / 3,
                1e-12,
                "one of three pairs is equal",
                "mutual_info_score",
            ),
            Fact(lambda: np.ones((9, 3)), lambda: GRID, 0, 0, "constants"),
        ),
        changes={
            "gaussian_wasserstein_correlation": "in squared units of the codes",
            "gaussian_wasserstein_correlation_norm": "relative to the total variance, so only a common scale cancels",
        },
    ),
}
