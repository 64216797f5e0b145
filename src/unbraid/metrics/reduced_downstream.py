"""Reduced downstream task: predicting all factors after removing the latents that matter most for one factor."""

from __future__ import annotations

from functools import partial

import numpy as np
from jaxtyping import Float, Int

from unbraid.metrics.arrays import Codes, Factors, check_at_least
from unbraid.metrics.downstream import accuracies_by_factor, predict_boosted
from unbraid.metrics.labels import Column, Continuous, as_codes_and_labels, as_test_arrays
from unbraid.metrics.trees import boosted_regression, boosted_trees, cached_fits


def reduced_downstream(
    codes: Codes,
    factors: Factors,
    test_codes: Codes,
    test_factors: Factors,
    continuous: Continuous = None,
    *,
    remove: int = 1,
    size: int = 1_000,
    trees: str = "fast",
    seed: int = 0,
) -> dict[str, float]:
    r"""Measure the accuracy of predicting factors after removing the most important latents of one factor.

    .. math:: A_{jl} = \text{accuracy of predicting factor } l \text{ from } c_{-I_j}, \qquad
        \text{reduced} = \frac{1}{k} \sum_j A_{jj}, \qquad
        \text{other} = \frac{1}{k (k - 1)} \sum_{j \ne l} A_{jl}

    where :math:`I_j` contains the most important latents of boosted trees that predict factor j. Their number is
    `remove`. :math:`c_{-I_j}` are the codes without these latents. The latents are removed one after the other, and the
    trees are fitted again after each removal. Factor j is called the reduced factor.

    Accuracies lie in [0, 1]. 0 means that no prediction is correct. 1 means that all predictions are correct. If each
    factor has one latent of its own, `mean_test_accuracy_reduced_factor` is at chance and
    `mean_test_accuracy_other_factors` is as high as without the removal. If the reduced factor can still be predicted,
    the remaining latents contain it too.

    Models are fitted to the first `size` training rows. A test value that does not occur in these rows is always
    counted as an error.

    Continuous factors: The trees of a continuous factor are regression trees, and the coefficient of determination,
    limited to [0, 1], takes the place of the accuracy. The training rows of each factor are the first `size` rows that
    have a label for this factor.

    Limitations: The accuracy of the other factors does not reveal whether latents have copies. It is high if each
    latent has a copy, because nothing is lost by the removal. The accuracy of the reduced factor is high if there are
    copies, but a low value can also mean that the representation contains no information. Consider both accuracies
    together.

    Deviations: disentanglement_lib computes the scores for several numbers of training rows, and each key begins with
    the number to which its score belongs. Here there is only one number, `size`. Both libraries use the same kind of
    boosted trees. To rank the latents for factor j, only the trees of factor j are fitted here, whereas
    disentanglement_lib fits those of all factors.

    Reference: disentanglement_lib, the library of Locatello et al. (2019), arXiv:1811.12359.

    Args:
        codes: Array of shape (n, d), one row per example and one column per latent.
        factors: Array of shape (n, k), one row per example and one column per factor. Discrete factors are
            integers. NaN is a missing label.
        test_codes: Array of shape (m, d), the codes of the test examples.
        test_factors: Array of shape (m, k), the factors of the test examples.
        continuous: Whether each factor is continuous. By default all factors are discrete.
        remove: Number of latents that are removed for each factor.
        size: Maximum number of training rows.
        trees: "fast" for our implementation, or "sklearn" for scikit-learn's, which is about a hundred times slower.
        seed: Random seed that breaks ties between equally good cuts.

    Returns:
        `mean_test_accuracy_reduced_factor` and `mean_test_accuracy_other_factors`; for each factor j the accuracies
        after the removal of its latents, ``reduced_factor_j:test_accuracy_reduced_factor`` and
        ``reduced_factor_j:test_accuracy_other_factors``; and the same keys with ``train`` for the training rows.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, if the arrays do not match, if factors are not
            integers and not declared continuous, if a factor is constant, if there are fewer than 2 factors, or if
            `remove` is not smaller than the number of latents.

    Example:
        >>> factors = np.indices((3, 4)).reshape(2, -1).T
        >>> scores = reduced_downstream(factors, factors, factors, factors)
        >>> scores["mean_test_accuracy_other_factors"], round(scores["mean_test_accuracy_reduced_factor"], 3)
        (1.0, 0.292)
    """
    check_at_least(1, remove=remove)
    check_at_least(2, size=size)
    table, labels = as_codes_and_labels(codes, factors, continuous, min_codes=remove + 1, min_factors=2)
    test_table, test_labels = as_test_arrays(test_codes, test_factors, table, labels)
    fit, accuracies = partial(predict_boosted, trees=trees, seed=seed), []
    with cached_fits():  # factors that lose the same latents have equal fits, which are reused
        for column in labels.columns():
            first = column._replace(values=column.values[:size])
            kept = _remaining_latents(table[column.rows][:size], first, remove, trees, seed)
            accuracies.append(accuracies_by_factor(fit, size, table[:, kept], labels, test_table[:, kept], test_labels))
    return _aggregate(np.stack(accuracies, axis=1))


def _remaining_latents(
    codes: Float[np.ndarray, "n d"], column: Column, remove: int, trees: str, seed: int
) -> Int[np.ndarray, " e"]:
    """Return the latents that remain after removing the most important ones for one factor."""
    kept = np.arange(codes.shape[1])
    fit = boosted_regression if column.continuous else boosted_trees
    for _ in range(remove):
        importances = fit(codes[:, kept], column.values, seed=seed, trees=trees).importances()
        kept = np.delete(kept, importances.argmax())
    return kept


def _aggregate(accuracies: Float[np.ndarray, "2 k k"]) -> dict[str, float]:
    """Return the scores.

    The axes of `accuracies` are the kind of rows (training or test), the reduced factor, and the predicted factor.
    """
    k, scores = accuracies.shape[1], {}
    for part, matrix in zip(("train", "test"), accuracies, strict=True):
        reduced, other = matrix.diagonal(), matrix[~np.eye(k, dtype=bool)].reshape(k, k - 1).mean(axis=1)
        for name, values in {"reduced_factor": reduced, "other_factors": other}.items():
            scores[f"mean_{part}_accuracy_{name}"] = float(values.mean())
            scores |= {f"reduced_factor_{j}:{part}_accuracy_{name}": float(values[j]) for j in range(k)}
    return scores
