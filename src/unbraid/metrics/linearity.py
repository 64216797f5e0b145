"""Linearity: whether codes follow a straight line as a factor changes, and whether nearer values have nearer codes."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from unbraid.metrics.arrays import Codes, Factors, check_at_least, check_factors_vary
from unbraid.metrics.information import consecutive_labels
from unbraid.metrics.labels import Continuous, as_codes_and_labels
from unbraid.metrics.settings import intervention_rows

NORMS = (1, 2)


def linearity(
    codes: Codes,
    factors: Factors,
    continuous: Continuous = None,
    *,
    repeats: int = 128,
    pairs: int = 10_000,
    seed: int = 0,
) -> dict[str, float]:
    r"""Measure whether codes follow a straight line as a factor changes, and whether nearer values have nearer codes.

    .. math:: \text{linear ratio} = \frac{d\, \lambda_1 / \sum_i \lambda_i - 1}{d - 1}, \quad
        \text{axis ratio} = \frac{d\, \max_i \sigma_i^2 / \sum_i \sigma_i^2 - 1}{d - 1}, \quad
        \text{axis alignment} = \frac{\text{axis ratio}}{\text{linear ratio}}

    A traversal is a sequence of codes, one for each value of one factor, from examples that have the same values of the
    other factors. :math:`\lambda_i` are the eigenvalues of the covariance matrix of the d latents in a traversal,
    in decreasing order, and :math:`\sigma_i^2` is the variance of latent i. The three scores are means over `repeats`
    traversals of each factor, and then over factors. They lie in [0, 1]. 0 means that the codes do not change, or that
    their variance is equal in all directions. `linear_ratio` is 1 if all traversals are straight lines, `axis_ratio` is
    1 if only one latent changes in each traversal, and `axis_alignment` is 1 if the direction of the largest variance
    is an axis.

    The other scores are Spearman's rank correlations between distances of factors and distances of codes. Code
    distances are in the L1 or the L2 norm. For each factor, `factor_rank_correlation` uses `pairs` pairs of different
    positions, each from one traversal of the factor. It is averaged over factors. `global_rank_correlation` uses
    `pairs` pairs of different rows. The distance of two values of a factor is the difference of their positions in the
    sorted list of values. For global pairs, the distance is the sum over all factors. Rank correlations lie in [-1, 1].
    They are 0 if all distances are equal. Distances that differ by less than 1e-9 of the largest distance count as
    equal.

    The arrays must hold the whole dataset and not a sample of it. Traversals are drawn only for combinations of the
    other factors that occur with all values of the factor. A factor with two values has a `linear_ratio` of 1 if the
    codes change. It is left out of `factor_rank_correlation`, which is 0 if no factor has more than two values. With
    one latent, the ratios are 1 if the codes change.

    Continuous factors: A continuous factor is sorted into 10 bins with equal counts, and one row per bin is drawn. Each
    other discrete factor keeps its value, and each other continuous factor stays in its bin. Distances are those of the
    bins. Only rows that have a label for every factor are used.

    Limitations: A small number of points can lie close to a line by chance, so random codes score above 0, especially
    for factors with few values. The order of values matters for rank correlations, so a factor without a natural order,
    such as shape, has low correlations, and so has a cyclic factor whose codes form a circle. Ratios do not depend on
    the order. The scale of the latents matters, because a latent with a small scale contributes little. In
    `global_rank_correlation`, a factor with many values outweighs the others. A high `linear_ratio` does not mean that
    factors are disentangled: two factors may change the codes in the same direction.

    Deviations: Scores are arithmetic means over factors. disent uses geometric means, which are not defined for
    negative correlations. Here the two positions of a pair always differ. In disent the two positions may be equal, and
    such pairs raise correlations. disent also has scores for distances between images, for linear correlations and for
    ratios of triplets. They are left out here.

    Reference: the library disent (Michlo, 2021), which introduces the scores ("factored components"); see also Michlo
    et al. (2023), arXiv:2202.13341.

    Args:
        codes: Array of shape (n, d), the codes of the whole dataset, one row per example and one column per latent.
        factors: Array of shape (n, k), the factors of the same examples, one column per factor. Discrete factors are
            integers. NaN is a missing label.
        continuous: Whether each factor is continuous. By default all factors are discrete.
        repeats: Number of traversals of each factor.
        pairs: Number of pairs for each rank correlation.
        seed: Random seed for the draws.

    Returns:
        `linear_ratio`, `axis_ratio` and `axis_alignment`; `factor_rank_correlation_l1`, `factor_rank_correlation_l2`,
        `global_rank_correlation_l1` and `global_rank_correlation_l2`.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, if the arrays do not match, if factors are not
            integers and not declared continuous, if a factor is constant, if there are fewer than 2 factors, if
            `repeats` is below 1, if `pairs` is below 2, or if too few settings of the other factors occur with all
            values of a factor.

    Example:
        >>> factors = np.indices((3, 4)).reshape(2, -1).T
        >>> scores = linearity(factors @ np.array([[1.0, 1.0], [-1.0, 1.0]]), factors)  # turned by 45 degrees
        >>> {key: round(value, 3) for key, value in scores.items() if key.endswith(("ratio", "alignment"))}
        {'linear_ratio': 1.0, 'axis_ratio': 0.0, 'axis_alignment': 0.0}
    """
    check_at_least(1, repeats=repeats)
    check_at_least(2, pairs=pairs)
    table, labels = as_codes_and_labels(codes, factors, continuous, min_factors=2)
    complete, rng = labels.require_complete_rows(), np.random.default_rng(seed)
    table, values = scaled(table[complete]), labels.binned()[complete]
    check_factors_vary(values)
    ratios: list[Float[np.ndarray, " 3"]] = []
    along: list[Float[np.ndarray, " norms"]] = []
    for j in range(values.shape[1]):
        lines = table[intervention_rows(values, j, repeats, rng, option="repeats")]
        ratios.append(line_ratios(lines).mean(axis=0))
        if lines.shape[1] > 2:
            along.append(traversal_correlations(lines, pairs, rng))
    names = ("linear_ratio", "axis_ratio", "axis_alignment")
    scores = dict(zip(names, np.mean(ratios, axis=0).tolist(), strict=True))
    means = np.mean(along, axis=0) if along else np.zeros(len(NORMS))
    for kind, found in (("factor", means), ("global", global_correlations(table, values, pairs, rng))):
        scores |= {f"{kind}_rank_correlation_l{p}": float(x) for p, x in zip(NORMS, found, strict=True)}
    return scores


def scaled(table: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """Return the codes relative to the first row, divided by their largest absolute value.

    Scaling does not change the scores. It makes constant latents exactly 0 and prevents the overflow and underflow of
    squares. Halving the values first prevents the overflow of differences.

    >>> scaled(np.array([[1e300, 3.0], [-1e300, 3.0]])).tolist()
    [[0.0, 0.0], [-1.0, 0.0]]
    """
    offsets = table / 2 - table[0] / 2
    return np.asarray(offsets / (np.abs(offsets).max() or 1.0))


def line_ratios(lines: Float[np.ndarray, "s m d"]) -> Float[np.ndarray, "s 3"]:
    """Return the linear ratio, the axis ratio and the axis alignment of each traversal.

    >>> line_ratios(np.array([[[0.0, 0.0], [0.0, 1.0], [0.0, 5.0]]])).round(6).tolist()
    [[1.0, 1.0, 1.0]]
    """
    centred = lines - lines[:, :1]  # exactly 0 if the codes do not change
    centred -= centred.mean(axis=1, keepdims=True)
    squares = np.square(np.linalg.svd(centred, compute_uv=False))
    total = squares.sum(axis=1)
    largest = np.stack([squares[:, 0], np.square(centred).sum(axis=1).max(axis=1)], axis=1)
    shares = np.divide(largest, total[:, None], out=np.zeros_like(largest), where=total[:, None] > 0)
    d = lines.shape[2]
    ratios = np.clip((d * shares - 1) / (d - 1), 0.0, 1.0) if d > 1 else np.round(shares)
    linear, axis = ratios.T
    straight = linear > 1e-12  # smaller ratios are rounding errors, and their quotient has no meaning
    alignment = np.divide(axis, linear, out=np.zeros_like(axis), where=straight)
    return np.stack([linear, axis, np.minimum(alignment, 1.0)], axis=1)


def traversal_correlations(
    lines: Float[np.ndarray, "s m d"], pairs: int, rng: np.random.Generator
) -> Float[np.ndarray, " norms"]:
    """Return the rank correlation for each norm, over random pairs of different positions in the same traversal."""
    line = rng.integers(len(lines), size=pairs)
    a, b = different_pairs(lines.shape[1], pairs, rng)
    return distance_correlations(np.abs(a - b), lines[line, a] - lines[line, b])


def global_correlations(
    table: Float[np.ndarray, "n d"], values: Int[np.ndarray, "n k"], pairs: int, rng: np.random.Generator
) -> Float[np.ndarray, " norms"]:
    """Return the rank correlation for each norm, over random pairs of different rows."""
    positions = np.stack([consecutive_labels(column) for column in values.T], axis=1)
    a, b = different_pairs(len(table), pairs, rng)
    return distance_correlations(np.abs(positions[a] - positions[b]).sum(axis=1), table[a] - table[b])


def different_pairs(
    n: int, pairs: int, rng: np.random.Generator
) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]]:
    """Draw pairs of different integers from 0 to n - 1, uniformly.

    >>> a, b = different_pairs(2, 100, np.random.default_rng(0))
    >>> set((a + b).tolist())
    {1}
    """
    first = rng.integers(n, size=pairs)
    return first, (first + rng.integers(1, n, size=pairs)) % n


def distance_correlations(
    distances: Int[np.ndarray, " pairs"], differences: Float[np.ndarray, "pairs d"]
) -> Float[np.ndarray, " norms"]:
    """Return the rank correlation of distances of factors with the lengths of code differences, for each norm."""
    lengths = [np.linalg.norm(differences, ord=p, axis=1) for p in NORMS]
    return np.array([rank_correlation(distances, length / (length.max() or 1.0)) for length in lengths])


def rank_correlation(a: Int[np.ndarray, " n"], b: Float[np.ndarray, " n"]) -> float:
    """Return Spearman's rank correlation, with average ranks for ties, or 0 if all values of one array are equal.

    Values of `b` lie in [0, 1]. They are rounded to 9 digits, because rounding errors would otherwise give equal values
    different ranks.

    >>> round(rank_correlation(np.array([1, 2, 2, 3]), np.array([0.4, 0.3, 0.3, 0.2])), 6)
    -1.0
    """
    from scipy.stats import rankdata

    ranks = [rankdata(values) for values in (a, np.round(b, 9))]
    x, y = (r - r.mean() for r in ranks)
    scale = np.sqrt((x @ x) * (y @ y))
    return float(np.clip(x @ y / scale, -1.0, 1.0)) if scale > 0 else 0.0
