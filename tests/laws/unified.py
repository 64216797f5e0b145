"""The law of the unified scores."""

from __future__ import annotations

import math

import numpy as np

from laws.base import LENGTH, UNIT, Fact, Law
from laws.linear import constant_codes, grid
from oracles.information import information_matrix
from support.known_codes import GRID, Array

RANGES = {
    "dci_disentanglement": UNIT,
    "dci_completeness": UNIT,
    "mig": LENGTH,
    "sap": LENGTH,
    "modularity": UNIT,
    "area_precision": LENGTH,
    "max_precision": (0.0, 3.0),
}
MATRICES = ("importance_gbt", "mutual_information", "accuracy_svm")


def disentanglement_of_information(codes: Array, factors: Array) -> float:
    """Return the mean over latents of one minus the entropy of their information, weighted by its sum."""
    matrix = information_matrix(codes.tolist(), factors.tolist())
    total, score = sum(map(sum, matrix)), 0.0
    for row in matrix:
        shares = [x / sum(row) for x in row if x > 0]
        score += sum(row) / total * (1 + sum(p * math.log(p) for p in shares) / math.log(len(row)))
    return score


LAWS: dict[str, Law] = {
    "unified": Law(
        ranges={f"{matrix}:{key}": limits for matrix in MATRICES for key, limits in RANGES.items()},
        # Trees break ties in a different order if latents are reordered, and a component of a graph may appear.
        tolerances={"rows": 0.05, "codes": 0.05, "factors": 1e-9, "affine": 1e-6},
        oracle=disentanglement_of_information,
        oracle_tolerance=1e-8,  # because of the constant 1e-11 that is added to each entry
        facts=(
            Fact(grid, grid, 1, 1e-8, "each factor is one latent"),
            Fact(grid, grid, 1, 1e-8, "each factor is one latent", "mutual_information:dci_completeness"),
            Fact(grid, grid, 1, 1e-12, "each factor is one latent", "mutual_information:mig"),
            Fact(grid, grid, 1, 1e-6, "each factor is one latent", "importance_gbt:sap"),
            Fact(grid, grid, 3, 0, "three pairs of a latent and a factor", "mutual_information:max_precision"),
            Fact(
                grid,
                grid,
                # From the largest to the smallest of the three entropies there are 1 and then 2 components, and 3 from
                # there to 0. The trapezoidal rule takes means at the steps.
                (math.log(6 / 5) * 3 + math.log(5 / 4) * 5 + math.log(4) * 6) / 2,
                1e-9,
                "the entropies are log 4, log 5 and log 6",
                "mutual_information:area_precision",
            ),
            Fact(
                lambda: np.c_[GRID[:, 0] * 24 + GRID[:, 1] * 6 + GRID[:, 2], GRID[:, 0]],
                grid,
                1,
                0,
                "one latent holds all factors",
                "mutual_information:max_precision",
            ),
            Fact(constant_codes, grid, 0, 0, "no latent is informative"),
            Fact(constant_codes, grid, 0, 0, "no edges", "mutual_information:max_precision"),
            Fact(
                lambda: GRID[:, [0, 0, 1, 1, 2, 2]], grid, 0, 0, "two copies of each latent", "mutual_information:sap"
            ),
        ),
        changes={f"accuracy_svm:{key}": "the SVM is regularised and codes are not standardised" for key in RANGES},
    ),
}
