"""Flatness: whether codes move along a straight line, and along an axis, as a factor changes."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from unbraid.metrics.arrays import Codes, Factors, check_at_least
from unbraid.metrics.labels import Continuous, as_codes_and_labels
from unbraid.metrics.settings import intervention_rows


def flatness(
    codes: Codes, factors: Factors, continuous: Continuous = None, *, repeats: int = 128, seed: int = 0
) -> dict[str, float]:
    r"""Measure whether codes move along a straight line in the direction of one latent as a factor changes.

    .. math:: \frac{1}{k} \sum_j \frac{E_s \left[ \max_{a, b} \| c_{sa} - c_{sb} \|_2 \right]}
        {E_s \left[ \sum_a \| c_{s, a + 1} - c_{sa} \|_1 - \max_a \| c_{s, a + 1} - c_{sa} \|_1 \right]}

    where :math:`c_{sa}` is the code of the example with value a of factor j and setting s of the other factors, that
    is, a combination of their values. :math:`E_s` is the mean over settings. a + 1 is the next value, and the first
    value follows the last one. The numerator is the width of the codes, that is, the largest distance between two of
    them. The denominator is the length of the closed path through all values minus its longest step. The path is closed
    because a cyclic factor has no first value.

    The score lies in [0, 1]. 0 means that the codes do not change as factors change. 1 means that for each factor the
    codes move along one latent, in the order of the values. Length is measured in the L1 norm and width in the L2 norm,
    so codes on a straight line that is not parallel to an axis score below 1. `ave_flatness_l1` and `ave_flatness_l2`
    use one norm, L1 or L2, for both length and width. `ave_flatness_l2` is 1 for any straight line.

    The arrays must hold the whole dataset and not a sample of it. For each factor, `repeats` settings are drawn among
    those that occur with all values of the factor. A factor with two values contributes 1 to `ave_flatness_l1` and
    `ave_flatness_l2` if the codes change at all.

    Continuous factors: A continuous factor is sorted into 10 bins with equal counts, and one row per bin is drawn. Each
    other discrete factor keeps its value, and each other continuous factor stays in its bin. Only rows that have a
    label for every factor are used.

    Limitations: The values of a factor are taken in increasing order, so a factor without a natural order, such as
    shape, scores low even if it has a latent of its own. The scale of the latents matters: a latent with a small scale
    contributes little to lengths and widths. Random codes score above 0, and a factor with two values scores high for
    any codes.

    Deviations: Settings that do not occur with all values of a factor are not drawn. disent also returns widths and
    lengths.

    Reference: the library disent (Michlo, 2021), which introduces the score; see also Michlo et al. (2023),
    arXiv:2202.13341.

    Args:
        codes: Array of shape (n, d), the codes of the whole dataset, one row per example and one column per latent.
        factors: Array of shape (n, k), the factors of the same examples, one column per factor. Discrete factors are
            integers. NaN is a missing label.
        continuous: Whether each factor is continuous. By default all factors are discrete.
        repeats: Number of settings of the other factors, for each factor.
        seed: Random seed for the draws.

    Returns:
        `ave_flatness`, the score; `ave_flatness_l1` and `ave_flatness_l2`, with the same norm for width and length.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, if the arrays do not match, if factors are not
            integers and not declared continuous, if a factor is constant, if there are fewer than 2 factors, or if too
            few settings of the other factors occur with all values of a factor.

    Example:
        >>> factors = np.indices((3, 4)).reshape(2, -1).T
        >>> flatness(factors, factors)
        {'ave_flatness': 1.0, 'ave_flatness_l1': 1.0, 'ave_flatness_l2': 1.0}
    """
    check_at_least(1, repeats=repeats)
    table, labels = as_codes_and_labels(codes, factors, continuous, min_factors=2)
    complete, rng = labels.require_complete_rows(), np.random.default_rng(seed)
    table, values = table[complete], labels.binned()[complete]
    ratios = []
    for j in range(values.shape[1]):
        lines = table[intervention_rows(values, j, repeats, rng, option="repeats")]
        (width_1, length_1), (width_2, length_2) = (mean_width_and_length(lines, order) for order in (1, 2))
        pairs = (width_2, length_1), (width_1, length_1), (width_2, length_2)
        ratios.append([width / length if length > 0 else 0.0 for width, length in pairs])
    names = ("ave_flatness", "ave_flatness_l1", "ave_flatness_l2")
    return {name: float(value) for name, value in zip(names, np.mean(ratios, axis=0), strict=True)}


def mean_width_and_length(lines: Float[np.ndarray, "s m d"], order: Any) -> tuple[float, float]:
    """Return the mean width and the mean length of s lines of m codes (see `flatness`), in the norm of the given order.

    >>> mean_width_and_length(np.array([[[0.0, 0.0], [3.0, 4.0], [0.0, 8.0]]]), 2)
    (8.0, 10.0)
    """
    steps = np.linalg.norm(np.roll(lines, -1, axis=1) - lines, ord=order, axis=2)
    length = steps.sum(axis=1) - steps.max(axis=1)
    widths = [np.linalg.norm(line[:, None] - line[None], ord=order, axis=2).max() for line in lines]
    return float(np.mean(widths)), float(length.mean())
