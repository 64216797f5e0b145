"""BetaVAE score."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from unbraid.metrics.arrays import Codes, Factors, as_codes_and_factors, check_at_least
from unbraid.metrics.interventions import interventions_by_factor


def beta_vae(
    codes: Codes, factors: Factors, *, batch: int = 64, train: int = 10_000, test: int = 5_000, seed: int = 0
) -> dict[str, float]:
    r"""The accuracy of a linear classifier that finds the fixed factor from the mean differences of codes.

    .. math:: \frac{1}{\text{test}} \sum_t \left[ \arg\max_j \left( w_j \cdot x_t + b_j \right) = j_t \right], \quad
        x_t = \frac{1}{\text{batch}} \sum_{l} \left| c(r_{tl}) - c(r'_{tl}) \right|

    where the rows :math:`r_{tl}` and :math:`r'_{tl}` share their value of the factor :math:`j_t`, with a different
    value for each :math:`l`, and :math:`w, b` is a logistic regression fitted to `train` other draws.

    The score lies in [0, 1]. 1 means that the small differences identify the fixed factor in every draw. Chance is 1/k.
    0 means that the classifier is always wrong, which does not occur in practice.

    The rows are a whole table. Each draw takes one factor and `batch` pairs: a random row, and a random row (possibly
    the same) among those that share its value of the factor. Rows with a value that no other row has are left out. If
    few rows share a value, pairs of a row with itself shrink all differences alike.

    Limitations: A rotated code reaches 1 like an aligned one. The score saturates and is no evidence of axis alignment.
    Noise codes, constant codes and copies beside good codes cost nothing. Codes are not standardised and the regression
    is penalised, so a code of small scale has little influence.

    Deviations: Pairs are drawn from the rows of a table and are not rendered again. A draw depends on the seed only.

    Reference: Higgins et al. (2017), beta-VAE, ICLR. The sizes and the mean absolute difference follow Locatello et al.
    (2019), arXiv:1811.12359.

    Args:
        codes: Array of shape (n, d), the codes of the whole table: one row per point and one column per code dimension.
        factors: Integer array of shape (n, k), the factors of the same rows, one column per factor.
        batch: Number of pairs per draw.
        train: Number of draws to which the classifier is fitted.
        test: Number of draws on which the classifier is tested.
        seed: Seed of the draws.

    Returns:
        `eval_accuracy`, the score, and `train_accuracy`, the accuracy on the draws to which the classifier was fitted.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, if the arrays do not match, if factors are not
            integers, if a factor is constant, if there are fewer than 2 factors, or if for some factor more than half
            of the rows share their value with no other row.

    Example:
        >>> factors = np.indices((3, 4)).reshape(2, -1).T
        >>> beta_vae(factors, factors, train=100, test=50)
        {'train_accuracy': 1.0, 'eval_accuracy': 1.0}
    """
    from unbraid.metrics.linear import logistic_regression

    check_at_least(1, batch=batch, train=train, test=test)
    table, values = as_codes_and_factors(codes, factors, min_factors=2)
    fixed, features = pair_differences(table, values, train + test, batch, np.random.default_rng(seed))
    model = logistic_regression(features[:train], fixed[:train])
    correct = model.predict(features) == fixed
    return {"train_accuracy": float(correct[:train].mean()), "eval_accuracy": float(correct[train:].mean())}


def pair_differences(
    codes: Float[np.ndarray, "n d"], factors: Int[np.ndarray, "n k"], count: int, batch: int, rng: np.random.Generator
) -> tuple[Int[np.ndarray, " m"], Float[np.ndarray, "m d"]]:
    """Draw `count` factors to fix, and return them with the mean absolute differences of codes over `batch` pairs.

    >>> values = np.array([[0], [0], [1], [1]])
    >>> fixed, features = pair_differences(values.astype(float), values, 3, 8, np.random.default_rng(0))
    >>> fixed.tolist(), features.tolist()
    ([0, 0, 0], [[0.0], [0.0], [0.0]])
    """
    from unbraid.metrics.row_statistics import mean_differences

    table, fixed = np.ascontiguousarray(codes), rng.integers(factors.shape[1], size=count)
    features = np.empty((count, codes.shape[1]))
    for groups, draws in interventions_by_factor(factors, fixed):
        rows = groups.replace_unshared(rng.integers(len(codes), size=len(draws) * batch), rng)
        partners = groups.draw_from_same_group(rows, 1, rng)
        features[draws] = mean_differences(table, rows.reshape(-1, batch), partners.reshape(-1, batch))
    return fixed, features
