"""Overlap and multiple encoding scores (OMES)."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from unbraid.metrics.arrays import Codes, Factors, check_at_least, input_error
from unbraid.metrics.information import consecutive_labels
from unbraid.metrics.labels import Continuous, as_codes_and_labels
from unbraid.metrics.settings import setting_numbers


def omes(
    codes: Codes,
    factors: Factors,
    continuous: Continuous = None,
    *,
    alpha: float = 0.5,
    pairs: int = 10_000,
    prune: int | float = 0.05,
    seed: int = 0,
) -> dict[str, float]:
    r"""Measure overlap (several factors in a latent) and multiple encoding (several latents for a factor) from pairs.

    .. math:: S_{ij} = 1 - \left| \mathrm{Corr}(c_i(x), c_i(x')) \right|, \quad
        o_{ij} = 1 - \frac{1}{k} \sum_l \left| [l = j] - S_{il} \right|, \quad
        m_{ij} = 1 - \frac{1}{d} \sum_l \left| [l = i] - S_{lj} \right|

    .. math:: \text{OMES} = \frac{1}{k} \sum_j \frac{\sum_i S_{ij}^2 \left( \alpha\, o_{ij} + (1 - \alpha)\, m_{ij}
        \right)}{\sum_i S_{ij}}

    where the correlation is computed over pairs of rows x and x' that differ in factor j only, k is the number of
    factors, d is the number of active latents, :math:`\alpha` is `alpha`, and [l = j] is 1 if l equals j and 0
    otherwise. If latent i does not depend on factor j, its two values in a pair are equal, and the association
    :math:`S_{ij}` is 0. If latent i depends on factor j only, its two values are nearly uncorrelated, and the
    association is nearly 1. :math:`o_{ij}` is 1 if latent i is fully associated with factor j and with no other factor.
    :math:`m_{ij}` is 1 if factor j is fully associated with latent i and with no other latent.

    The scores lie in [0, 1]. 0 means that no factor is associated with any active latent. 1 means that each factor is
    associated with one latent and each latent with one factor. A latent of pure noise is associated with every factor.
    Codes of pure noise score about :math:`\alpha / k + (1 - \alpha) / d`.

    The arrays must contain the whole dataset and not a sample of it. For each factor, `pairs` pairs of rows are drawn
    that have different values of this factor and the same values of all other factors. Latents whose standard deviation
    is below `prune` are left out. The others are called active.

    The two values of a factor in a pair are never equal, so even a perfect latent has a negative correlation:
    -1 / (m - 1) for a factor with m equally frequent values. The association of a perfect latent is therefore below 1,
    and it is 0 if the factor has only two values. `omes_signed` is the score with
    :math:`S_{ij} = 1 - \max(0, \mathrm{Corr})`, which avoids this effect.

    Continuous factors: A continuous factor is sorted into 10 bins with equal counts. The two rows of a pair are in
    different bins of one factor, and in the same bins of all others. Only rows that have a label for every factor are
    used.

    Limitations: Factors with few values score low in `omes`, see above. The score needs rows that differ in one factor
    only. The association does not depend on the order of the values, but it does depend on the shape of a latent's
    distribution.

    Deviations: Pairs are drawn at random, with replacement, whereas the authors enumerate all combinations. Scores are
    not rounded. `omes_signed` is not in the paper. The authors also report the maximum over latents in place of the
    weighted mean.

    Reference: Dapueto et al. (2024), arXiv:2409.18017.

    Args:
        codes: Array of shape (n, d), the codes of the whole dataset, one row per example and one column per latent.
        factors: Array of shape (n, k), the factors of the same examples, one column per factor. Discrete factors are
            integers. NaN is a missing label.
        continuous: Whether each factor is continuous. By default all factors are discrete.
        alpha: Weight of the overlap score, from 0 to 1.
        pairs: Number of pairs for each factor.
        prune: Minimum standard deviation of an active latent, in units of the codes.
        seed: Random seed for the draws.

    Returns:
        `omes`, the score; `overlap_score` and `multiple_encoding_score`, the same score with `alpha` 1 and 0; and
        `omes_signed`.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, if the arrays do not match, if factors are not
            integers and not declared continuous, if a factor is constant, if there are fewer than 2 factors, if
            `alpha` is not in [0, 1], if `pairs` is below 2, if `prune` is negative, or if there is a factor for which
            no two rows differ in this factor only.

    Example:
        >>> factors = np.indices((30, 40)).reshape(2, -1).T
        >>> scores = omes(factors, factors)
        >>> bool(scores["omes"] > 0.9), round(scores["omes_signed"], 6)
        (True, 1.0)
    """
    check_at_least(2, pairs=pairs)
    check_at_least(0, prune=prune)
    if not 0 <= alpha <= 1:
        raise input_error("The 'alpha' parameter must be in [0, 1].", alpha, "Use 0.5 for equal weights.")
    table, labels = as_codes_and_labels(codes, factors, continuous, min_factors=2)
    complete, rng = labels.require_complete_rows(), np.random.default_rng(seed)
    table, values = table[complete], labels.binned()[complete]
    active = (table.std(axis=0, ddof=1) >= prune) & (np.ptp(table, axis=0) > 0)
    correlations = np.zeros((int(active.sum()), values.shape[1]))
    for j in range(values.shape[1]):
        correlations[:, j] = _pair_correlations(table[:, active], *draw_pairs(values, j, pairs, rng))
    overlap, multiple = pooled_scores(1 - np.abs(correlations))
    signed = pooled_scores(1 - np.maximum(0.0, correlations))
    return {
        "omes": alpha * overlap + (1 - alpha) * multiple,
        "overlap_score": overlap,
        "multiple_encoding_score": multiple,
        "omes_signed": alpha * signed[0] + (1 - alpha) * signed[1],
    }


def draw_pairs(
    factors: Int[np.ndarray, "n k"], j: int, count: int, rng: np.random.Generator
) -> tuple[Int[np.ndarray, " count"], Int[np.ndarray, " count"]]:
    """Draw pairs of rows that have different values of factor j, and the same values of all other factors.

    The first row is drawn from all rows that belong to at least one such pair. The second row is drawn from all rows
    that form such a pair with the first row. Rows may be drawn repeatedly.

    Args:
        factors: Integer factors, one row per example.
        j: The column of the factor that differs.
        count: The number of pairs.
        rng: The random generator.

    Returns:
        The indices of the first rows and those of the second rows.

    Raises:
        UserError: If there is no such pair.

    >>> grid = np.array([[0, 0], [0, 1], [1, 0], [1, 2]])
    >>> first, second = draw_pairs(grid, 0, 20, np.random.default_rng(0))
    >>> sorted(set(zip(first.tolist(), second.tolist())))
    [(0, 2), (2, 0)]
    """
    setting, value = setting_numbers(np.delete(factors, j, axis=1)), consecutive_labels(factors[:, j])
    cell = setting * (int(value.max()) + 1) + value
    order = np.argsort(cell, kind="stable")
    sorted_cells, sorted_settings = cell[order], setting[order]
    start, stop = (np.searchsorted(sorted_settings, setting, side) for side in ("left", "right"))
    own_start, own_stop = (np.searchsorted(sorted_cells, cell, side) for side in ("left", "right"))
    others = (stop - start) - (own_stop - own_start)
    possible = np.flatnonzero(others > 0)
    if not len(possible):
        rule = f"Some rows must differ in factor column {j} only."
        raise input_error(rule, f"no such pair among {len(factors)} rows", "Pass the whole table, or drop that factor.")
    first = possible[rng.integers(len(possible), size=count)]
    place = start[first] + rng.integers(others[first])
    place += np.where(place >= own_start[first], own_stop[first] - own_start[first], 0)
    return first, order[place]


def _pair_correlations(
    codes: Float[np.ndarray, "n d"], first: Int[np.ndarray, " m"], second: Int[np.ndarray, " m"]
) -> Float[np.ndarray, " d"]:
    """Return the correlation of each latent in the first rows with itself in the second rows.

    The result is 1 for a latent that is constant in all pairs, because such a latent does not depend on the factor that
    differs.
    """
    x, y = (codes[rows] - codes[rows].mean(axis=0) for rows in (first, second))
    spread = np.sqrt((x**2).sum(axis=0) * (y**2).sum(axis=0))
    correlations = np.ones(codes.shape[1])
    np.divide((x * y).sum(axis=0), spread, out=correlations, where=spread > 0)
    return correlations


def pooled_scores(association: Float[np.ndarray, "d k"]) -> tuple[float, float]:
    """Return the overlap score and the multiple encoding score of a matrix of associations.

    >>> pooled_scores(np.eye(3))
    (1.0, 1.0)
    >>> pooled_scores(np.ones((4, 2)))
    (0.5, 0.25)
    """
    d, k = association.shape
    if not d:
        return 0.0, 0.0
    # All entries are in [0, 1], so |0 - S| is S and |1 - S| is 1 - S. Replacing one S in the sum of a row or column by
    # 1 - S changes the sum by 1 - 2 S.
    overlap = 1 - (association.sum(axis=1, keepdims=True) + 1 - 2 * association) / k
    multiple = 1 - (association.sum(axis=0, keepdims=True) + 1 - 2 * association) / d
    total = association.sum(axis=0)
    means = [
        np.divide((association**2 * score).sum(axis=0), total, out=np.zeros(k), where=total > 0).mean()
        for score in (overlap, multiple)
    ]
    return float(means[0]), float(means[1])
