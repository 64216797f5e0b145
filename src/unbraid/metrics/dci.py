"""Disentanglement, completeness and informativeness."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Real

from unbraid.errors import UserError, unknown
from unbraid.metrics.arrays import Codes, Factors, as_codes, as_factors, labelled, refusal, same_columns, same_rows
from unbraid.metrics.trees import boosted_trees
from unbraid.metrics.trees.boosting import FITS, IMPORTANCES

FLOOR = 1e-11  # added to every importance, as in the reference code


def dci(
    codes: Codes,
    factors: Factors,
    test_codes: Codes,
    test_factors: Factors,
    *,
    trees: str = "fast",
    importances: str = "mean",
    seed: int = 0,
) -> dict[str, float]:
    r"""Whether each code serves one factor (D), each factor one code (C), and how well trees predict factors (I).

    .. math:: D = \sum_i \frac{\sum_j R_{ij}}{\sum_{lj} R_{lj}} \left( 1 - H_k(R_{i \cdot}) \right), \qquad
        C = \sum_j \frac{\sum_i R_{ij}}{\sum_{il} R_{il}} \left( 1 - H_d(R_{\cdot j}) \right)

    with :math:`R_{ij}` the importance of code i to boosted trees that predict factor j, and :math:`H_b` the entropy, to
    base b, of a row or column scaled to sum 1. Informativeness is the mean accuracy of those trees.

    0: every used code serves all factors alike (D), every factor needs all codes alike (C). 1: one factor a code, one
    code a factor. Both ask only which codes are used, informativeness whether that is of any use: read them together.

    `importances` decides what `disentanglement` and `completeness` are: "mean" (today's scikit-learn) or "per_tree"
    (scikit-learn up to 0.19, and so perhaps older tables). They differ greatly, .68 against .18 for the same noisy
    code, so both are always returned under their own names too. `trees` is "fast" (ours) or "sklearn" (the papers'
    classifier itself, about a hundred times slower; scores agree to about .005). A score depends on the number of
    training points: D of one code doubled from 2,000 to 10,000 points.

    Needs at least 2 codes and 2 factors: an entropy to base 1 is undefined. A constant or otherwise unused code has
    weight 0. Where no code is used at all, D and C are 0. A factor of one value in the training points is refused; a
    test value that was never trained on counts as an error. Codes are compared as float32, and values closer than 1e-7
    as equal: otherwise D and C do not change under increasing maps of single codes.

    Beware: trees memorise, so noise codes predict the training points well; and a factor that no code holds still has
    importances, of noise, that lower D of the codes it borrows: on 120 points collapsing one of three noisy codes took
    D from .63 to .26. Copies of a code share its importance at random: C falls, D need not. Rotated codes lose D and C
    while informativeness hardly moves.

    Deviations: informativeness is accuracy, as in the reference code; the paper has the error. Ties between equally
    good cuts are broken by `seed`, in the reference code by numpy's global state.

    Reference: Eastwood and Williams (2018), openreview By-7dz-AZ; boosted trees, 10,000 training and 5,000 test points
    as in Locatello et al. (2019), arXiv:1811.12359.

    >>> factors = np.indices((3, 4)).reshape(2, -1).T
    >>> scores = dci(factors, factors, factors, factors)
    >>> round(scores["disentanglement"], 6), round(scores["completeness"], 6), scores["informativeness_test"]
    (1.0, 1.0, 1.0)
    """
    _known(trees, importances)
    table, values = labelled(codes, factors, min_codes=2, min_factors=2)
    test_table, test_values = as_codes(test_codes, "Test codes"), as_factors(test_factors, "Test factors")
    same_rows(test_table, test_values)
    same_columns(table, test_table, "Codes")
    same_columns(values, test_values, "Factors")
    forests = [boosted_trees(table, column, seed=seed, trees=trees) for column in values.T]
    train = [np.mean(f.train_predictions == column) for f, column in zip(forests, values.T, strict=True)]
    test = [np.mean(f.predict(test_table) == column) for f, column in zip(forests, test_values.T, strict=True)]
    scores = {"informativeness_train": float(np.mean(train)), "informativeness_test": float(np.mean(test))}
    for kind in IMPORTANCES:
        matrix = np.stack([forest.importances(kind) for forest in forests], axis=1)
        scores[f"disentanglement_{kind}"] = disentanglement(matrix)[0]
        scores[f"completeness_{kind}"] = completeness(matrix)[0]
    chosen = {name: scores[f"{name}_{importances}"] for name in ("disentanglement", "completeness")}
    return chosen | scores


def _known(trees: str, importances: str) -> None:
    if trees not in FITS:
        raise UserError(unknown("trees", trees, FITS))
    if importances not in IMPORTANCES:
        raise UserError(unknown("kind of importances", importances, IMPORTANCES))


def disentanglement(importance: Real[np.ndarray, "d k"]) -> tuple[float, Float[np.ndarray, " d"]]:
    r"""The score of an importance matrix, and that of each code.

    .. math:: D_i = 1 - H_k(R_{i \cdot}), \quad D = \sum_i \frac{\sum_j R_{ij}}{\sum_{lj} R_{lj}} D_i

    0: every code is equally important to all factors, or to none. 1: every code of any importance serves one factor.

    >>> score, each = disentanglement(np.array([[1.0, 0.0], [0.5, 0.5]]))
    >>> round(score, 6), each.round(6).tolist()
    (0.5, [1.0, 0.0])
    """
    matrix = _importance(importance)
    p = (matrix + FLOOR) / (matrix + FLOOR).sum(axis=1, keepdims=True)
    each = 1 + np.sum(p * np.log(p), axis=1) / np.log(matrix.shape[1])
    weights = matrix.sum(axis=1) / (matrix.sum() or 1.0)
    return float(np.clip(weights @ each, 0.0, 1.0)), each


def completeness(importance: Real[np.ndarray, "d k"]) -> tuple[float, Float[np.ndarray, " k"]]:
    """The same for factors: 0 where every factor needs all codes alike, 1 where each needs one only.

    >>> score, each = completeness(np.array([[1.0, 0.5], [0.0, 0.5]]))
    >>> round(score, 6), each.round(6).tolist()
    (0.5, [1.0, 0.0])
    """
    return disentanglement(np.transpose(importance))


def _importance(importance: Real[np.ndarray, "d k"]) -> Float[np.ndarray, "d k"]:
    """A checked matrix of importances."""
    matrix = as_codes(importance, "Importances", columns=2)
    if (matrix < 0).any():
        raise refusal("Importances must be >= 0.", matrix.min(), "Pass gains or absolute weights.")
    return matrix
