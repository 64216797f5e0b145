"""Neuron knockout (NK)."""

from __future__ import annotations

from functools import partial

import numpy as np

from unbraid.metrics.arrays import Codes, Factors, check_at_least
from unbraid.metrics.downstream import accuracies_by_factor, predict_boosted
from unbraid.metrics.labels import Continuous, Labels, as_codes_and_labels, as_test_arrays
from unbraid.metrics.snc import assign_latents
from unbraid.metrics.trees import cached_fits


def nk(
    codes: Codes,
    factors: Factors,
    test_codes: Codes,
    test_factors: Factors,
    continuous: Continuous = None,
    *,
    size: int = 1_000,
    trees: str = "fast",
    seed: int = 0,
) -> dict[str, float]:
    r"""Measure how much less accurately each factor is predicted without the latent that is assigned to it.

    .. math:: \frac{1}{k} \sum_j \left( A_j(c) - A_j(c_{-i_j}) \right)

    where :math:`A_j` is the accuracy of boosted trees that predict factor j, :math:`i_j` is the latent that `snc`
    assigns to factor j, and :math:`c_{-i_j}` are the codes without this latent.

    The score lies in [-1, 1]. 0 means that the other latents predict the factors as well as all latents, for example
    because each latent has a copy, or because no latent is informative. The highest score to expect is 1 minus
    the frequency of the most common value, averaged over factors. It is reached if each factor is represented by one
    latent only. Negative scores are due to chance.

    Models are fitted to the first `size` training rows. A test value that does not occur in these rows is always
    counted as an error. If there are fewer latents than factors, the factors without a latent contribute 0.

    Continuous factors: The trees of a continuous factor are regression trees, and the coefficient of determination,
    limited to [0, 1], takes the place of the accuracy. For each factor, only the rows that have a label for it are
    used.

    Limitations: A latent that represents several factors does not lower the score. To detect such latents, use `snc` or
    DCI. Trees memorise their training rows, so no test row should be a training row.

    Deviations: The paper uses a neural network with one hidden layer of 256 units. Here it is replaced by boosted
    trees, because these are deterministic and other metrics use them too. The trees are fitted to at most `size` rows.

    Reference: Mahon et al. (2023), arXiv:2304.02335.

    Args:
        codes: Array of shape (n, d), one row per example and one column per latent.
        factors: Array of shape (n, k), one row per example and one column per factor. Discrete factors are
            integers. NaN is a missing label.
        test_codes: Array of shape (m, d), the codes of the test examples.
        test_factors: Array of shape (m, k), the factors of the test examples.
        continuous: Whether each factor is continuous. By default all factors are discrete.
        size: Maximum number of training rows.
        trees: "fast" for our implementation, or "sklearn" for scikit-learn's, which is about a hundred times slower.
        seed: Random seed that breaks ties between equally good cuts.

    Returns:
        `nk`, the score; `mean_test_accuracy`, the accuracy with all latents; and `mean_knockout_accuracy`, the accuracy
        without the assigned latents.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, if the arrays do not match, if factors are not
            integers and not declared continuous, if a factor is constant in training, or if there are fewer than 2
            latents.

    Example:
        >>> factors = np.indices((2, 4)).reshape(2, -1).T
        >>> nk(factors, factors, factors, factors)
        {'nk': 0.625, 'mean_test_accuracy': 1.0, 'mean_knockout_accuracy': 0.375}
    """
    check_at_least(2, size=size)
    table, labels = as_codes_and_labels(codes, factors, continuous, min_codes=2)
    test_table, test_labels = as_test_arrays(test_codes, test_factors, table, labels)
    fit = partial(predict_boosted, trees=trees, seed=seed)
    with cached_fits():
        complete = accuracies_by_factor(fit, size, table, labels, test_table, test_labels)[1]
        knockout = complete.copy()
        for j, i in enumerate(assign_latents(table, labels)):
            if i is not None:
                arrays = np.delete(table, i, axis=1), _factor(labels, j), np.delete(test_table, i, axis=1)
                knockout[j] = accuracies_by_factor(fit, size, *arrays, _factor(test_labels, j))[1, 0]
    return {
        "nk": float(np.mean(complete - knockout)),
        "mean_test_accuracy": float(complete.mean()),
        "mean_knockout_accuracy": float(knockout.mean()),
    }


def _factor(labels: Labels, j: int) -> Labels:
    """Return the labels of one factor."""
    return Labels(labels.values[:, j : j + 1], labels.continuous[j : j + 1])
