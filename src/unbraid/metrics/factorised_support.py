"""Factorised-support score: whether all combinations of the values of two latents occur."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from unbraid.metrics.arrays import Codes, as_codes, check_at_least


def factorised_support(codes: Codes, *, batch: int = 128, batches: int = 10, seed: int = 0) -> dict[str, float]:
    r"""Measure how far the codes are from containing all combinations of the values of their latents.

    .. math:: \sum_{i < l} \max_{a, b} \min_n \left( (c_{ai} - c_{ni})^2 + (c_{bl} - c_{nl})^2 \right)

    where i and l are latents, and a, b and n are rows of a batch. The sum is averaged over batches. Each term is the
    squared Hausdorff distance between two sets: the pairs of values of latents i and l that occur together, and all
    pairs of their values.

    Scores are >= 0, and low values are good. 0 means that every value of a latent occurs together with every value of
    each other latent, even if some combinations are rare. The score needs no factors. Correlations between latents do
    not change the score as long as all combinations occur.

    `fos_standardised` is the mean of the same terms over pairs of latents, after each latent is scaled to a standard
    deviation of 1. It is the headline score, because it depends neither on the scale nor on the number of latents.
    Terms with a constant latent are 0.

    Limitations: A batch of few examples never fills all combinations, so scores depend on the size of the batch, and
    independent continuous latents do not reach 0. Outliers determine the distance. Constant latents and codes without
    information about the factors may score well. Use the score together with a metric that needs factors.

    Deviations: At most `batches` disjoint random batches are used, whereas the authors' library uses all rows.
    `fos_standardised` is not in the paper.

    Reference: Roth et al. (2023), arXiv:2210.07347.

    Args:
        codes: Array of shape (n, d), one row per example and one column per latent.
        batch: Number of rows per batch. If there are fewer rows, one batch contains all of them.
        batches: Maximum number of batches.
        seed: Random seed for the rows of the batches.

    Returns:
        `fos_standardised`, and `fos`, the published score, which is the sum over pairs of latents without scaling.

    Raises:
        UserError: If the codes are not a finite 2-d array of numbers with at least 2 columns, if `batch` is
            below 2, or if `batches` is below 1.

    Example:
        >>> grid = np.indices((3, 4)).reshape(2, -1).T
        >>> factorised_support(grid)
        {'fos_standardised': 0.0, 'fos': 0.0}
        >>> factorised_support(np.c_[:5, :5])["fos"]
        8.0
    """
    check_at_least(2, batch=batch)
    check_at_least(1, batches=batches)
    table = as_codes(codes, columns=2)
    scales = np.where(np.ptp(table, axis=0) > 0, table.std(axis=0), np.inf)
    order = np.random.default_rng(seed).permutation(len(table))
    count = max(1, min(batches, len(table) // batch))
    parts = [table[order[i * batch : (i + 1) * batch]] for i in range(count)]
    pairs = table.shape[1] * (table.shape[1] - 1) / 2
    return {
        "fos_standardised": _mean_distance([(part - table.mean(axis=0)) / scales for part in parts]) / pairs,
        "fos": _mean_distance(parts),
    }


def _mean_distance(batches: list[Float[np.ndarray, "n d"]]) -> float:
    """Return the sum over pairs of latents of the squared Hausdorff distance, averaged over batches."""
    from unbraid.metrics.row_statistics import pair_hausdorff

    return float(np.mean([pair_hausdorff(np.ascontiguousarray(part)).sum() for part in batches]))
