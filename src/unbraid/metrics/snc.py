"""Single-neuron classification (SNC)."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int, Real

from unbraid.metrics.arrays import Codes, Factors
from unbraid.metrics.information import consecutive_labels, mutual_information
from unbraid.metrics.labels import Column, Continuous, Labels, as_codes_and_labels, as_test_arrays

BINS = 10  # number of classes into which a continuous factor is divided


def snc(
    codes: Codes, factors: Factors, test_codes: Codes, test_factors: Factors, continuous: Continuous = None
) -> dict[str, float]:
    r"""Measure the accuracy of predicting each factor from the bins of one latent that is assigned to it.

    .. math:: \frac{1}{k} \sum_j \frac{1}{m} \sum_n \left[ \pi_j(b_j(c_{n, i_j})) = v_{nj} \right]

    The inner sum is over the m test examples. Latent :math:`i_j` is assigned to factor j, :math:`b_j` divides the
    latent into as many bins as the factor has values, with equal counts of training examples, and :math:`\pi_j` assigns
    a different value of the factor to each bin. Latents are assigned to factors so that the sum of the mutual
    information of factors and binned latents is largest, and no latent is assigned twice. Values are assigned to bins
    so that as many training examples as possible are predicted correctly.

    The score lies in [0, 1]. 0 means that no prediction is correct. 1 means that each factor is determined by a latent
    of its own: all examples of a bin have the same value of the factor. Random codes score a little above
    chance. The chance level of a factor is 1 / (its number of values), and the mean is taken over factors.

    A prediction depends only on the bin of a single latent, so a latent that mixes two factors scores low even if a
    more flexible model could separate them. The bins depend only on the order of the values of a latent. If there are
    fewer latents than factors, the most frequent value is predicted for the factors without a latent.

    Continuous factors: A continuous factor is divided into 10 classes with equal counts in the training examples. For
    each factor, only the rows that have a label for this factor are used.

    Limitations: The bins have equal counts, so the score of a factor with unequally frequent values is below 1 even for
    perfect codes. The score is not corrected for chance.

    Deviations: The mutual information is computed from all training examples. The authors also report scores on special
    subsets of the data, for compositional generalisation. These scores are not included.

    Reference: Mahon et al. (2023), arXiv:2304.02335.

    Args:
        codes: Array of shape (n, d), one row per example and one column per latent.
        factors: Array of shape (n, k), one row per example and one column per factor. Discrete factors are
            integers. NaN is a missing label.
        test_codes: Array of shape (m, d), the codes of the test examples.
        test_factors: Array of shape (m, k), the factors of the test examples.
        continuous: Whether each factor is continuous. By default all factors are discrete.

    Returns:
        `snc`, the score on the test examples, and `snc_train`, the score on the training examples.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, if the arrays do not match, if factors are not
            integers and not declared continuous, or if a factor is constant in training.

    Example:
        >>> factors = np.indices((3, 4)).reshape(2, -1).T
        >>> snc(factors, factors, factors, factors)
        {'snc': 1.0, 'snc_train': 1.0}
    """
    table, labels = as_codes_and_labels(codes, factors, continuous)
    test_table, test_labels = as_test_arrays(test_codes, test_factors, table, labels)
    assigned, scores = assign_latents(table, labels), []
    for i, column, test_column in zip(assigned, labels.columns(), test_labels.columns(), strict=True):
        classes = as_classes(column.values, column), as_classes(test_column.values, column)
        latents = [None, None] if i is None else [table[column.rows, i], test_table[test_column.rows, i]]
        scores.append(_accuracies(latents[0], classes[0], latents[1], classes[1]))
    train, test = np.mean(scores, axis=0)
    return {"snc": float(test), "snc_train": float(train)}


def as_classes(values: Real[np.ndarray, " m"], train: Column) -> Real[np.ndarray, " m"]:
    """Return the labels of a discrete factor unchanged, or divide those of a continuous one into classes.

    The classes have equal counts in the training labels.

    >>> as_classes(np.array([-5.0, 0.9]), Column(slice(None), np.linspace(0, 1, 101), True)).tolist()
    [0, 9]
    """
    if not train.continuous:
        return values
    edges = np.unique(np.quantile(train.values, np.arange(1, BINS) / BINS))
    return np.searchsorted(edges[edges > train.values.min()], values, side="right")


def assign_latents(codes: Float[np.ndarray, "n d"], labels: Labels) -> list[int | None]:
    """Return a different latent for each factor, such that their mutual information, summed over factors, is largest.

    If there are fewer latents than factors, the entry of a factor without a latent is None.

    >>> from unbraid.metrics.labels import as_labels
    >>> grid = np.indices((3, 4)).reshape(2, -1).T
    >>> assign_latents(-1.0 * grid[:, ::-1], as_labels(grid))
    [1, 0]
    """
    from scipy.optimize import linear_sum_assignment

    information = []
    for column in labels.columns():
        classes = consecutive_labels(as_classes(column.values, column).astype(np.int64))
        count = int(classes.max()) + 1
        bins = [_bin_ranks(latent, latent, count) for latent in codes[column.rows].T]
        information.append(mutual_information(np.stack(bins, axis=1), classes[:, None])[:, 0])
    rows, columns = linear_sum_assignment(np.stack(information), maximize=True)
    found = dict(zip(rows.tolist(), columns.tolist(), strict=True))
    return [found.get(j) for j in range(len(information))]


def _bin_ranks(train: Float[np.ndarray, " n"], values: Float[np.ndarray, " m"], count: int) -> Int[np.ndarray, " m"]:
    """Return the bin of each value among `count` bins that have equal counts of the training values."""
    ordered = np.sort(train)
    edges = ordered[np.arange(1, count) * len(train) // count]
    return np.searchsorted(edges, values, side="right")


def _accuracies(
    train: Float[np.ndarray, " n"] | None,
    classes: Real[np.ndarray, " n"],
    test: Float[np.ndarray, " m"] | None,
    test_classes: Real[np.ndarray, " m"],
) -> tuple[float, float]:
    """Return the training accuracy and the test accuracy of predicting one factor from the bins of one latent."""
    from scipy.optimize import linear_sum_assignment

    values, index = np.unique(classes, return_inverse=True)
    if train is None or test is None:
        most_frequent = values[np.bincount(index).argmax()]
        return float(np.mean(classes == most_frequent)), float(np.mean(test_classes == most_frequent))
    bins, test_bins = (_bin_ranks(train, latent, len(values)) for latent in (train, test))
    counts = np.zeros((len(values), len(values)), dtype=np.int64)
    np.add.at(counts, (bins, index), 1)
    value_of_bin = values[linear_sum_assignment(counts, maximize=True)[1]]
    return float(np.mean(value_of_bin[bins] == classes)), float(np.mean(value_of_bin[test_bins] == test_classes))
