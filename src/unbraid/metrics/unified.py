"""Unified scores: the aggregations of several metrics, applied to three matrices that relate latents to factors."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from unbraid.errors import UserError, unknown_name_message
from unbraid.metrics.arrays import Codes, Factors
from unbraid.metrics.dci import completeness, disentanglement
from unbraid.metrics.factor_information import factor_information
from unbraid.metrics.labels import Continuous, Labels, as_codes_and_labels, as_test_arrays
from unbraid.metrics.modularity import mean_modularity
from unbraid.metrics.sap import mean_gap, scores_of_latents
from unbraid.metrics.trees import boosted_regression, boosted_trees
from unbraid.metrics.trees.boosting import FITS


def unified(
    codes: Codes,
    factors: Factors,
    test_codes: Codes,
    test_factors: Factors,
    continuous: Continuous = None,
    *,
    bins: int = 20,
    trees: str = "fast",
    seed: int = 0,
) -> dict[str, float]:
    r"""Measure disentanglement by all combinations of a matrix (latents, factors) and an aggregation of its entries.

    .. math:: \text{score} = a(R), \quad a \in \{ \text{DCI}, \text{MIG}, \text{SAP}, \text{modularity},
        \text{precision} \}, \quad R \in \{ \text{importances}, \text{information}, \text{accuracies} \}

    The three matrices are the importances of boosted trees (`importance_gbt`, as in DCI), the mutual information of
    binned latents and factors (`mutual_information`, as in MIG and modularity) and the accuracies of linear SVMs with
    one latent (`accuracy_svm`, as in SAP). DCI, MIG, SAP and modularity each combine one matrix with one aggregation.
    Here all combinations are computed, so the effect of the matrix can be separated from that of the aggregation.

    The aggregations are:

    - `dci_disentanglement` and `dci_completeness`: the disentanglement and the completeness of DCI
    - `mig`: the gap between the two largest entries of a factor, divided by the entropy of the factor, as a mean over
      factors
    - `sap`: the same without the division
    - `modularity`: the modularity of latents
    - `max_precision` and `area_precision`: two scores of a graph

    The graph connects a latent and a factor if their entry of the matrix is positive and at least a given threshold.
    The precision at a threshold is the number of connected components that contain an edge. `max_precision` is the
    maximum of the precision over all thresholds. `area_precision` is the integral of the precision over the thresholds
    from the smallest to the largest entry, by the trapezoidal rule.

    For the disentanglement of DCI and for modularity, 0 means that each latent is equally related to all factors, and 1
    means that it is related to one factor only. For completeness, the same holds with latents and factors exchanged.
    `sap` and `area_precision` are in units of the matrix, and `mig` in units of the matrix per nat. `max_precision` is
    at most the number of factors and at most the number of latents. It equals the number of factors if, at some
    threshold, each factor is in a component of its own.

    Continuous factors: The trees are regression trees, the information is that of `bins` equal-width bins of the
    factor, and the squared correlation takes the place of the accuracy, as in `dci`, `mig` and `sap`. For each factor,
    only the rows that have a label for this factor are used.

    Limitations: Each matrix has the limitations of the metric that it comes from. The accuracies of linear SVMs are
    above 0 even for latents without information, so `accuracy_svm:dci_completeness` is near 0 for most representations.
    For each factor, the importances of all latents sum to 1, however badly the factor is predicted.

    Deviations: disentanglement_lib also returns the scores of each latent and factor before they are averaged, and the
    points at which a dendrogram of the matrix merges factors. It separates the names of matrix and aggregation by a
    dot.

    Reference: disentanglement_lib, the library of Locatello et al. (2019), arXiv:1811.12359; the scores were used in
    Locatello et al. (2020), arXiv:2010.14766.

    Args:
        codes: Array of shape (n, d), one row per example and one column per latent.
        factors: Array of shape (n, k), one row per example and one column per factor. Discrete factors are
            integers. NaN is a missing label.
        test_codes: Array of shape (m, d), the codes of the test examples.
        test_factors: Array of shape (m, k), the factors of the test examples.
        continuous: Whether each factor is continuous. By default all factors are discrete.
        bins: Number of equal-width bins into which each latent is discretised.
        trees: "fast" for our implementation, or "sklearn" for scikit-learn's, which is about a hundred times slower.
        seed: Random seed that breaks ties between equally good cuts.

    Returns:
        A score named ``MATRIX:AGGREGATION`` for each of the three matrices and the seven aggregations above.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, if the arrays do not match, if factors are not
            integers and not declared continuous, if a factor is constant, if there are fewer than 2 latents or 2
            factors, or if `trees` is unknown.

    Example:
        >>> factors = np.indices((3, 4)).reshape(2, -1).T
        >>> scores = unified(factors, factors, factors, factors)
        >>> round(scores["mutual_information:mig"], 6), scores["importance_gbt:max_precision"]
        (1.0, 2.0)
    """
    if trees not in FITS:
        raise UserError(unknown_name_message("trees", trees, FITS))
    table, labels = as_codes_and_labels(codes, factors, continuous, min_codes=2, min_factors=2)
    test_table, test_labels = as_test_arrays(test_codes, test_factors, table, labels)
    information, entropies, _ = factor_information(table, labels, bins)
    columns = zip(labels.columns(), test_labels.columns(), strict=True)
    matrices = {
        "importance_gbt": _importances(table, labels, trees, seed),
        "mutual_information": information,
        "accuracy_svm": np.stack([scores_of_latents(table, a, test_table, b) for a, b in columns], axis=1),
    }
    return {
        f"{name}:{key}": value
        for name, matrix in matrices.items()
        for key, value in aggregate_matrix(matrix, entropies).items()
    }


def _importances(codes: Float[np.ndarray, "n d"], labels: Labels, trees: str, seed: int) -> Float[np.ndarray, "d k"]:
    """Return the importance of each latent to boosted trees that predict each factor."""
    fitted = [
        (boosted_regression if column.continuous else boosted_trees)(
            codes[column.rows], column.values, seed=seed, trees=trees
        ).importances()
        for column in labels.columns()
    ]
    return np.stack(fitted, axis=1)


def aggregate_matrix(matrix: Float[np.ndarray, "d k"], entropies: Float[np.ndarray, " k"]) -> dict[str, float]:
    """Return all aggregations of a matrix that relates latents to factors.

    Args:
        matrix: Entries >= 0, one row per latent and one column per factor.
        entropies: Entropy of each factor, by which `mig` divides.

    Returns:
        The scores by the name of the aggregation.

    Example:
        >>> scores = aggregate_matrix(np.eye(2), np.ones(2))
        >>> scores["mig"], scores["modularity"], scores["max_precision"], scores["area_precision"]
        (1.0, 1.0, 2.0, 2.0)
    """
    thresholds = np.sort(matrix.ravel())[::-1]
    precisions = np.array([count_components(matrix, threshold) for threshold in thresholds])
    return {
        "dci_disentanglement": disentanglement(matrix)[0],
        "dci_completeness": completeness(matrix)[0],
        "mig": mean_gap(matrix / entropies),
        "sap": mean_gap(matrix),
        "modularity": mean_modularity(matrix),
        "area_precision": float(np.sum((precisions[:-1] + precisions[1:]) / 2 * -np.diff(thresholds))),
        "max_precision": float(precisions.max()),
    }


def count_components(matrix: Float[np.ndarray, "d k"], threshold: float) -> int:
    """Count the connected components that contain an edge. Edges are the positive entries that are >= threshold.

    >>> count_components(np.array([[0.9, 0.1], [0.0, 0.8], [0.0, 0.0]]), 0.5)
    2
    """
    edges = (matrix >= threshold) & (matrix > 0)
    component = np.arange(len(edges))  # connected rows get the index of the first of these rows
    for column in edges.T:
        joined = np.unique(component[column])
        component[np.isin(component, joined)] = joined.min(initial=len(edges))
    return len(np.unique(component[edges.any(axis=1)]))
