"""BetaVAE score."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from unbraid.metrics.arrays import Codes, Factors, check_at_least
from unbraid.metrics.interventions import check_draws, interventions_by_factor, split_rows
from unbraid.metrics.labels import Continuous, as_codes_and_labels


def beta_vae(
    codes: Codes,
    factors: Factors,
    continuous: Continuous = None,
    draws: str = "disjoint",
    *,
    batch: int = 64,
    train: int = 10_000,
    test: int = 5_000,
    seed: int = 0,
) -> dict[str, float]:
    r"""Measure how accurately a linear classifier identifies the fixed factor from differences between codes.

    .. math:: \frac{1}{\text{test}} \sum_t \left[ \arg\max_j \left( w_j \cdot x_t + b_j \right) = j_t \right], \quad
        x_t = \frac{1}{\text{batch}} \sum_{l} \left| c(r_{tl}) - c(r'_{tl}) \right|

    For each draw t, a factor :math:`j_t` is fixed and `batch` pairs of rows :math:`(r_{tl}, r'_{tl})` are drawn. Both
    rows of a pair have the same value of this factor, and the value may differ between pairs. The features :math:`x_t`
    are the absolute differences of the codes c of the two rows, averaged over the pairs. The weights :math:`w, b` are
    those of a logistic regression that is fitted to `train` other draws.

    The score lies in [0, 1]. 1 means that the classifier identifies the fixed factor in every test draw. Random
    guessing scores 1/k. 0 means that the classifier is always wrong, which does not occur in practice.

    The arrays must hold the whole dataset and not a sample of it. The first row of a pair is drawn at random. The
    second row is drawn from the other rows that have the same value of the fixed factor. A row whose value occurs in no
    other row is never drawn.

    The classifier is fitted to pairs from one half of the rows and tested on pairs from the other half, so no row is
    used for both. Rows are assigned to the halves at random within each value of the factor with the most values, so
    that both halves receive rows of every value of this factor that occurs at least 4 times. With
    ``draws="reference"``, training and evaluation draw from all rows and a row may be paired with itself, as in
    published scores. With these draws, if few rows share a value of a factor, the classifier recognises rows that it
    has seen, and codes without information score above 1/k.

    Continuous factors: A continuous factor is fixed within a bin: both rows of a pair fall into the same bin. There are
    10 bins with equal counts. Rows without a label for a factor are not drawn when this factor is fixed.

    Limitations: The score saturates. A high score is no evidence of axis alignment, because a rotated representation
    can also reach 1. Latents that hold noise or a constant do not lower the score, and neither do copies of good
    latents. Codes are not standardised and the regression is penalised, so a latent with a small scale has little
    influence.

    Deviations: Pairs are drawn from the rows of a table, whereas the paper generates new images for each pair. The
    draws depend only on `seed`.

    Reference: Higgins et al. (2017), beta-VAE, ICLR. The numbers of draws and the mean absolute difference follow
    Locatello et al. (2019), arXiv:1811.12359.

    Args:
        codes: Array of shape (n, d), the codes of the whole dataset, one row per example and one column per latent.
        factors: Array of shape (n, k), the factors of the same examples, one column per factor. Discrete factors are
            integers. NaN is a missing label.
        continuous: Whether each factor is continuous. By default all factors are discrete.
        draws: "disjoint" to draw training and test pairs from different halves of the rows, or "reference" to draw both
            from all rows.
        batch: Number of pairs per draw.
        train: Number of draws to which the classifier is fitted.
        test: Number of draws on which the classifier is tested.
        seed: Random seed for the draws.

    Returns:
        `eval_accuracy`, the score, and `train_accuracy`, the accuracy on the draws to which the classifier was fitted.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, if the arrays do not match, if factors are not
            integers and not declared continuous, if a factor is constant, if there are fewer than 2 factors, or if
            there is a factor for which more than half of the rows have a value that occurs in no other row.

    Example:
        >>> factors = np.indices((3, 4)).reshape(2, -1).T
        >>> beta_vae(factors, factors, train=100, test=50)
        {'train_accuracy': 1.0, 'eval_accuracy': 1.0}
    """
    from unbraid.metrics.linear import logistic_regression

    check_at_least(1, batch=batch, train=train, test=test)
    check_draws(draws)
    table, labels = as_codes_and_labels(codes, factors, continuous, min_factors=2)
    values, rng = labels.binned(), np.random.default_rng(seed)
    if draws == "reference":
        fixed, features = pair_differences(table, values, train + test, batch, rng)
    else:
        halves = [
            pair_differences(table[rows], values[rows], count, batch, rng, distinct=True)
            for rows, count in zip(split_rows(values, rng), (train, test), strict=True)
        ]
        fixed, features = (np.concatenate(part) for part in zip(*halves, strict=True))
    model = logistic_regression(features[:train], fixed[:train])
    correct = model.predict(features) == fixed
    return {"train_accuracy": float(correct[:train].mean()), "eval_accuracy": float(correct[train:].mean())}


def pair_differences(
    codes: Float[np.ndarray, "n d"],
    factors: Int[np.ndarray, "n k"],
    count: int,
    batch: int,
    rng: np.random.Generator,
    *,
    distinct: bool = False,
) -> tuple[Int[np.ndarray, " m"], Float[np.ndarray, "m d"]]:
    """Draw `count` factors to fix. Return them, and the mean absolute differences of codes while each factor is fixed.

    Each mean is taken over `batch` random pairs of rows with the same value of the fixed factor. If `distinct` is true,
    the two rows of a pair are different.

    >>> values = np.array([[0], [0], [1], [1]])
    >>> fixed, features = pair_differences(values.astype(float), values, 3, 8, np.random.default_rng(0))
    >>> fixed.tolist(), features.tolist()
    ([0, 0, 0], [[0.0], [0.0], [0.0]])
    """
    from unbraid.metrics.row_statistics import mean_differences

    table, fixed = np.ascontiguousarray(codes), rng.integers(factors.shape[1], size=count)
    features = np.empty((count, codes.shape[1]))
    for groups, draws in interventions_by_factor(factors, fixed, least=0.0 if distinct else 0.5):
        rows = groups.replace_unshared(rng.integers(len(codes), size=len(draws) * batch), rng)
        partners = groups.draw_other_row(rows, rng) if distinct else groups.draw_from_same_group(rows, 1, rng)
        features[draws] = mean_differences(table, rows.reshape(-1, batch), partners.reshape(-1, batch))
    return fixed, features
