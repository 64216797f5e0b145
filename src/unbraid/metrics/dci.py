"""Disentanglement, completeness and informativeness (DCI)."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Real

from unbraid.errors import UserError, unknown_name_message
from unbraid.metrics.arrays import Codes, Factors, as_codes, input_error
from unbraid.metrics.labels import Column, Continuous, as_codes_and_labels, as_test_arrays
from unbraid.metrics.regression import prediction_score
from unbraid.metrics.trees import Forest, RegressionForest, boosted_regression, boosted_trees
from unbraid.metrics.trees.boosting import FITS, IMPORTANCES

FLOOR = 1e-11  # added to each importance, as in disentanglement_lib, to avoid log(0)


def dci(
    codes: Codes,
    factors: Factors,
    test_codes: Codes,
    test_factors: Factors,
    continuous: Continuous = None,
    *,
    trees: str = "fast",
    importances: str = "mean",
    seed: int = 0,
) -> dict[str, float]:
    r"""Measure disentanglement (one factor per latent), completeness (one latent per factor) and informativeness.

    .. math:: D = \sum_i \frac{\sum_j R_{ij}}{\sum_{lj} R_{lj}} \left( 1 - H_k(R_{i \cdot}) \right), \qquad
        C = \sum_j \frac{\sum_i R_{ij}}{\sum_{il} R_{il}} \left( 1 - H_d(R_{\cdot j}) \right)

    where :math:`R_{ij}` is the importance of latent i to boosted trees that predict factor j, and :math:`H_b` is the
    entropy, to base b, of a row or column scaled to sum 1. Informativeness is the mean accuracy of those trees.

    All scores lie in [0, 1]. For disentanglement D, 0 means that every used latent is equally important to all factors,
    and 1 means that every used latent is important to one factor only. For completeness C, 0 means that every factor
    needs all latents equally, and 1 means that every factor needs one latent only. D and C do not depend on how
    accurate the predictions are. Informativeness measures this accuracy, so read the three scores together.

    `importances` selects the definition of the importances R. "mean" is the definition of current scikit-learn, which
    sums the gains of all trees before it normalises them. "per_tree" is the definition of scikit-learn up to 0.19,
    which normalises the gains of each tree and then averages over trees. Older published scores may use this
    definition. The two definitions can give very different scores, for example 0.68 and 0.18 for the same noisy
    representation. Therefore the scores for both definitions are always returned, under separate names. Scores also
    depend on the number of training examples. For one representation, D doubled when the number of examples rose from
    2,000 to 10,000.

    A constant or otherwise unused latent has weight 0. If no latent is used at all, D and C are 0. A test value that
    does not occur in the training examples is always counted as an error. Codes are compared as float32, and values
    closer than 1e-7 are treated as equal. Apart from that, increasing maps of single latents do not change D and C.

    Continuous factors: The trees of a continuous factor are regression trees, fitted to the squared error with the same
    stages, depth and learning rate. Its informativeness is the coefficient of determination of their predictions,
    limited to [0, 1]. For each factor, only the rows that have a label for it are used.

    Limitations: Trees memorise, so even noise latents predict the training examples well. If no latent represents a
    factor, its trees still use some latents because of noise. The D of these latents is then lower. On 120 examples,
    setting one of three noisy latents to a constant reduced D from 0.63 to 0.26. Copies of a latent split its
    importance at random, which lowers C but not necessarily D. Rotating a representation lowers D and C, while
    informativeness hardly changes.

    Deviations: Informativeness is an accuracy, as in disentanglement_lib (the library of Locatello et al.), whereas the
    paper uses the error. Ties between equally good cuts are broken by `seed`, whereas disentanglement_lib breaks them
    by the global random state of numpy.

    Reference: Eastwood and Williams (2018), openreview By-7dz-AZ. The boosted trees and the usual 10,000 training and
    5,000 test examples follow Locatello et al. (2019), arXiv:1811.12359.

    Args:
        codes: Array of shape (n, d), one row per example and one column per latent.
        factors: Array of shape (n, k), one row per example and one column per factor. Discrete factors are
            integers. NaN is a missing label.
        test_codes: Array of shape (m, d), the codes of the test examples.
        test_factors: Array of shape (m, k), the factors of the test examples.
        continuous: Whether each factor is continuous. By default all factors are discrete.
        trees: "fast" for our implementation, or "sklearn" for that of scikit-learn, which the papers use. It is about a
            hundred times slower. The scores of the two implementations agree to about 0.005.
        importances: "mean" or "per_tree", the definition of the importances from which `disentanglement` and
            `completeness` are computed.
        seed: Random seed that breaks ties between equally good cuts.

    Returns:
        `disentanglement` and `completeness`; these two scores for both definitions of the importances, as
        `disentanglement_mean`, `completeness_mean`, `disentanglement_per_tree` and `completeness_per_tree`; and
        `informativeness_train` and `informativeness_test`.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, if the arrays do not match, if factors are not
            integers and not declared continuous, if a factor is constant in training, if there are fewer than 2 latents
            or 2 factors (an entropy to base 1 is undefined), or if an option is unknown.

    Example:
        >>> factors = np.indices((3, 4)).reshape(2, -1).T
        >>> scores = dci(factors, factors, factors, factors)
        >>> round(scores["disentanglement"], 6), round(scores["completeness"], 6), scores["informativeness_test"]
        (1.0, 1.0, 1.0)
    """
    _check_options(trees, importances)
    table, labels = as_codes_and_labels(codes, factors, continuous, min_codes=2, min_factors=2)
    test_table, test_labels = as_test_arrays(test_codes, test_factors, table, labels)
    forests, train, test = [], [], []
    for column, test_column in zip(labels.columns(), test_labels.columns(), strict=True):
        forests.append(_fit_forest(table[column.rows], column, seed, trees))
        train.append(prediction_score(forests[-1].train_predictions, column))
        test.append(prediction_score(forests[-1].predict(test_table[test_column.rows]), test_column))
    scores = {"informativeness_train": float(np.mean(train)), "informativeness_test": float(np.mean(test))}
    for kind in IMPORTANCES:
        matrix = np.stack([forest.importances(kind) for forest in forests], axis=1)
        scores[f"disentanglement_{kind}"] = disentanglement(matrix)[0]
        scores[f"completeness_{kind}"] = completeness(matrix)[0]
    selected = {name: scores[f"{name}_{importances}"] for name in ("disentanglement", "completeness")}
    return selected | scores


def _fit_forest(codes: Float[np.ndarray, "n d"], column: Column, seed: int, trees: str) -> Forest | RegressionForest:
    """Fit the trees that predict one factor."""
    fit = boosted_regression if column.continuous else boosted_trees
    return fit(codes, column.values, seed=seed, trees=trees)


def _check_options(trees: str, importances: str) -> None:
    """Raise a `UserError` if an option has an unknown value."""
    if trees not in FITS:
        raise UserError(unknown_name_message("trees", trees, FITS))
    if importances not in IMPORTANCES:
        raise UserError(unknown_name_message("kind of importances", importances, IMPORTANCES))


def disentanglement(importance: Real[np.ndarray, "d k"]) -> tuple[float, Float[np.ndarray, " d"]]:
    r"""Return the disentanglement of an importance matrix, and the disentanglement of each latent.

    .. math:: D_i = 1 - H_k(R_{i \cdot}), \quad D = \sum_i \frac{\sum_j R_{ij}}{\sum_{lj} R_{lj}} D_i

    where R is the importance matrix, and :math:`H_k` is the entropy, to base k, of a row scaled to sum 1.

    0 means that every latent is equally important to all factors, or to none. 1 means that every used latent is
    important to one factor only.

    >>> score, each = disentanglement(np.array([[1.0, 0.0], [0.5, 0.5]]))
    >>> round(score, 6), each.round(6).tolist()
    (0.5, [1.0, 0.0])
    """
    matrix = _check_importances(importance)
    p = (matrix + FLOOR) / (matrix + FLOOR).sum(axis=1, keepdims=True)
    each = 1 + np.sum(p * np.log(p), axis=1) / np.log(matrix.shape[1])
    weights = matrix.sum(axis=1) / (matrix.sum() or 1.0)
    return float(np.clip(weights @ each, 0.0, 1.0)), each


def completeness(importance: Real[np.ndarray, "d k"]) -> tuple[float, Float[np.ndarray, " k"]]:
    """Return the completeness of an importance matrix, and the completeness of each factor.

    0 means that every factor needs all latents equally. 1 means that each factor needs one latent only.

    >>> score, each = completeness(np.array([[1.0, 0.5], [0.0, 0.5]]))
    >>> round(score, 6), each.round(6).tolist()
    (0.5, [1.0, 0.0])
    """
    return disentanglement(np.transpose(importance))


def _check_importances(importance: Real[np.ndarray, "d k"]) -> Float[np.ndarray, "d k"]:
    """Return the importances as float64, or raise a `UserError` if they are not a non-negative matrix."""
    matrix = as_codes(importance, "Importances", columns=2)
    if (matrix < 0).any():
        raise input_error("Importances must be >= 0.", matrix.min(), "Pass gains or absolute weights.")
    return matrix
